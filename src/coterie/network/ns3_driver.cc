// SPDX-License-Identifier: GPL-2.0-only
//
// This file links ns-3, which is GPL-2.0-only, and is therefore under the same licence. It is a
// program of its own: the rest of the package only runs it and reads what it prints.
//
// Standard input, numbers and words between blanks:
//   segment buffer queues routes
//   vertices links flows
//   per link:  a b bits_per_s_from_a bits_per_s_from_b latency_ns
//   per flow:  src dst bytes start_ns hops  direction...
// Direction 2u crosses link u from a to b, 2u + 1 from b to a. Standard output: one JSON object.

#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

constexpr uint32_t FIRST_ADDRESS = 0x0a000001;  // 10.0.0.1
constexpr uint16_t PORTS = 60000;               // from 1; spread, as ns-3 searches a node's ports

struct Link {
    uint32_t a, b;
    uint64_t rateA, rateB;
    int64_t latencyNs;
    NetDeviceContainer devices;
};

struct Flow {
    uint32_t src, dst;
    uint64_t bytes;
    int64_t startNs;
    std::vector<uint32_t> directions;
    uint64_t written = 0;
    uint64_t received = 0;
    Time finish = Time(-1);
};

Ipv4Address SourceOf(uint32_t f) { return Ipv4Address(FIRST_ADDRESS + 2 * f); }
Ipv4Address DestinationOf(uint32_t f) { return Ipv4Address(FIRST_ADDRESS + 2 * f + 1); }

// Sends every flow along its own path: one look-up by destination, which no other flow has.
class FlowRouting : public Ipv4RoutingProtocol {
  public:
    void Arrive(Ipv4Address at) { m_local.insert(at.Get()); }

    void Leave(Ipv4Address from, Ipv4Address to, Ptr<NetDevice> by) {
        Ptr<Ipv4Route> route = Create<Ipv4Route>();
        route->SetSource(from);
        route->SetDestination(to);
        route->SetGateway(Ipv4Address::GetZero());
        route->SetOutputDevice(by);
        m_routes[to.Get()] = route;
    }

    Ptr<Ipv4Route> RouteOutput(Ptr<Packet>, const Ipv4Header& header, Ptr<NetDevice>,
                               Socket::SocketErrno& error) override {
        auto found = m_routes.find(header.GetDestination().Get());
        error = found == m_routes.end() ? Socket::ERROR_NOROUTETOHOST : Socket::ERROR_NOTERROR;
        return found == m_routes.end() ? nullptr : found->second;
    }

    bool RouteInput(Ptr<const Packet> packet, const Ipv4Header& header, Ptr<const NetDevice> from,
                    const UnicastForwardCallback& forward, const MulticastForwardCallback&,
                    const LocalDeliverCallback& deliver, const ErrorCallback&) override {
        const uint32_t to = header.GetDestination().Get();
        if (m_local.count(to)) {
            deliver(packet, header, m_ipv4->GetInterfaceForDevice(from));
            return true;
        }
        auto found = m_routes.find(to);
        if (found == m_routes.end()) {
            return false;
        }
        forward(found->second, packet, header);
        return true;
    }

    void NotifyInterfaceUp(uint32_t) override {}
    void NotifyInterfaceDown(uint32_t) override {}
    void NotifyAddAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void NotifyRemoveAddress(uint32_t, Ipv4InterfaceAddress) override {}
    void SetIpv4(Ptr<Ipv4> ipv4) override { m_ipv4 = ipv4; }
    void PrintRoutingTable(Ptr<OutputStreamWrapper>, Time::Unit) const override {}

  private:
    Ptr<Ipv4> m_ipv4;
    std::unordered_map<uint32_t, Ptr<Ipv4Route>> m_routes;
    std::unordered_set<uint32_t> m_local;
};

std::vector<Flow> g_flows;
size_t g_unfinished = 0;

void Receive(uint32_t f, Ptr<Socket> socket) {
    Flow& flow = g_flows[f];
    while (Ptr<Packet> packet = socket->Recv()) {
        flow.received += packet->GetSize();
    }
    if (flow.received >= flow.bytes && flow.finish.IsStrictlyNegative()) {
        flow.finish = Simulator::Now();
        if (--g_unfinished == 0) {
            Simulator::Stop();
        }
    }
}

// Keeps the socket's buffer full. Writing as much as fits keeps every segment whole; an application
// that writes fixed pieces, as BulkSend does, leaves odd ends that depend on their size.
void Send(uint32_t f, Ptr<Socket> socket) {
    Flow& flow = g_flows[f];
    while (flow.written < flow.bytes) {
        const uint64_t left = flow.bytes - flow.written;
        const auto piece = std::min<uint64_t>(socket->GetTxAvailable(), left);
        const int written = piece ? socket->Send(Create<Packet>(piece)) : 0;
        if (written <= 0) {
            return;
        }
        flow.written += written;
    }
}

void Must(bool holds, const char* otherwise) {
    if (!holds) {
        std::cerr << otherwise << "\n";
        std::exit(2);
    }
}

template <typename T>
T Read() {
    T value{};
    Must(bool(std::cin >> value), "the scenario on standard input cannot be read to its end");
    return value;
}

void Configure(uint32_t segment, uint32_t buffer, bool fair) {
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(segment));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(buffer));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(buffer));
    if (fair) {
        // CoDel drops only from queues of more bytes than this, so never.
        Config::SetDefault("ns3::CoDelQueueDisc::MinBytes", UintegerValue(UINT32_MAX));
    }
}

void InstallLink(NodeContainer& nodes, Link& link, bool fair) {
    PointToPointHelper wire;
    wire.SetChannelAttribute("Delay", TimeValue(NanoSeconds(link.latencyNs)));
    if (fair) {
        // ns-3's 100 packets would be first come, first served, below the fair queue.
        wire.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1p"));
    }
    link.devices = wire.Install(nodes.Get(link.a), nodes.Get(link.b));
    link.devices.Get(0)->SetAttribute("DataRate", DataRateValue(DataRate(link.rateA)));
    link.devices.Get(1)->SetAttribute("DataRate", DataRateValue(DataRate(link.rateB)));
}

QueueDiscContainer InstallQueues(Link& link, bool fair) {
    TrafficControlHelper queues = TrafficControlHelper::Default();
    if (fair) {
        queues = TrafficControlHelper();
        queues.SetRootQueueDisc("ns3::FqCoDelQueueDisc", "Flows", UintegerValue(UINT32_MAX),
                                "MaxSize", StringValue("4294967295p"));
    }
    return queues.Install(link.devices);
}

std::vector<Ipv4Address> GlobalRoutes(NodeContainer& nodes, std::vector<Link>& links) {
    Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
    for (Link& link : links) {
        addresses.Assign(link.devices);
        addresses.NewNetwork();
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();
    std::vector<Ipv4Address> first(nodes.GetN());
    for (uint32_t v = 0; v < nodes.GetN(); ++v) {
        Ptr<Ipv4> ipv4 = nodes.Get(v)->GetObject<Ipv4>();
        if (ipv4->GetNInterfaces() > 1) {
            first[v] = ipv4->GetAddress(1, 0).GetLocal();
        }
    }
    return first;
}

void GivenRoutes(NodeContainer& nodes, std::vector<Link>& links) {
    std::vector<Ptr<FlowRouting>> routing(nodes.GetN());
    for (uint32_t v = 0; v < nodes.GetN(); ++v) {
        routing[v] = CreateObject<FlowRouting>();
        nodes.Get(v)->GetObject<Ipv4>()->SetRoutingProtocol(routing[v]);
    }
    for (Link& link : links) {
        for (uint32_t end = 0; end < 2; ++end) {
            Ptr<NetDevice> device = link.devices.Get(end);
            Ptr<Ipv4> ipv4 = device->GetNode()->GetObject<Ipv4>();
            ipv4->SetUp(ipv4->AddInterface(device));
        }
    }
    for (uint32_t f = 0; f < g_flows.size(); ++f) {
        const Flow& flow = g_flows[f];
        const Ipv4Address src = SourceOf(f), dst = DestinationOf(f);
        routing[flow.src]->Arrive(src);
        routing[flow.dst]->Arrive(dst);
        for (uint32_t direction : flow.directions) {
            Link& link = links[direction / 2];
            const uint32_t near = direction % 2;  // which of the link's two devices sends
            routing[near ? link.b : link.a]->Leave(src, dst, link.devices.Get(near));
            routing[near ? link.a : link.b]->Leave(dst, src, link.devices.Get(1 - near));
        }
    }
}

void InstallFlow(NodeContainer& nodes, uint32_t f, Ipv4Address src, Ipv4Address dst) {
    const Flow& flow = g_flows[f];
    const uint16_t port = 1 + f % PORTS;
    Ptr<Socket> listener = Socket::CreateSocket(nodes.Get(flow.dst), TcpSocketFactory::GetTypeId());
    Must(listener->Bind(InetSocketAddress(dst, port)) == 0 && listener->Listen() == 0,
         "a receiver cannot listen");
    listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(),
                                [f](Ptr<Socket> socket, const Address&) {
                                    socket->SetRecvCallback([f](Ptr<Socket> s) { Receive(f, s); });
                                });
    Ptr<Socket> sender = Socket::CreateSocket(nodes.Get(flow.src), TcpSocketFactory::GetTypeId());
    Must(sender->Bind(InetSocketAddress(src, port)) == 0, "a sender cannot bind");
    sender->SetSendCallback([f](Ptr<Socket> socket, uint32_t) { Send(f, socket); });
    Simulator::ScheduleWithContext(nodes.Get(flow.src)->GetId(), NanoSeconds(flow.startNs), [=]() {
        Must(sender->Connect(InetSocketAddress(dst, port)) == 0, "a sender cannot connect");
    });
}

std::string Congestion() {
    TypeId::AttributeInformation info;
    TcpL4Protocol::GetTypeId().LookupAttributeByName("SocketType", &info);
    return info.initialValue->SerializeToString(info.checker);
}

struct Scenario {
    uint32_t segment, buffer;
    bool fair, global;
    uint32_t vertices;
    std::vector<Link> links;
};

Scenario ReadScenario() {
    Scenario scenario;
    scenario.segment = Read<uint32_t>();
    scenario.buffer = Read<uint32_t>();
    scenario.fair = Read<std::string>() == "fair";
    scenario.global = Read<std::string>() == "global";
    scenario.vertices = Read<uint32_t>();
    scenario.links.resize(Read<uint32_t>());
    g_flows.resize(Read<uint32_t>());
    for (Link& link : scenario.links) {
        link.a = Read<uint32_t>();
        link.b = Read<uint32_t>();
        link.rateA = Read<uint64_t>();
        link.rateB = Read<uint64_t>();
        link.latencyNs = Read<int64_t>();
    }
    for (Flow& flow : g_flows) {
        flow.src = Read<uint32_t>();
        flow.dst = Read<uint32_t>();
        flow.bytes = Read<uint64_t>();
        flow.startNs = Read<int64_t>();
        flow.directions.resize(Read<uint32_t>());
        for (uint32_t& direction : flow.directions) {
            direction = Read<uint32_t>();
        }
    }
    return scenario;
}

uint64_t Drops(const QueueDiscContainer& queues, const std::vector<Link>& links) {
    uint64_t drops = 0;
    for (uint32_t q = 0; q < queues.GetN(); ++q) {
        drops += queues.Get(q)->GetStats().nTotalDroppedPackets;
    }
    for (const Link& link : links) {
        for (uint32_t end = 0; end < 2; ++end) {
            auto device = DynamicCast<PointToPointNetDevice>(link.devices.Get(end));
            drops += device->GetQueue()->GetTotalDroppedPackets();
        }
    }
    return drops;
}

void Print(uint64_t drops) {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const double cpu = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
                       1e-6 * (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    std::printf("{\"drops\": %llu, \"cpu_s\": %.6f, \"congestion\": \"%s\", \"finish_s\": [",
                static_cast<unsigned long long>(drops), cpu, Congestion().c_str());
    for (size_t f = 0; f < g_flows.size(); ++f) {
        std::printf("%s%.9f", f ? ", " : "", g_flows[f].finish.GetSeconds());
    }
    std::printf("]}\n");
}

}  // namespace

int main() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // with the caller gone, nobody reads the result
    Scenario scenario = ReadScenario();
    Configure(scenario.segment, scenario.buffer, scenario.fair);
    NodeContainer nodes;
    nodes.Create(scenario.vertices);
    InternetStackHelper stack;
    stack.SetIpv6StackInstall(false);
    stack.Install(nodes);
    QueueDiscContainer queues;
    for (Link& link : scenario.links) {
        InstallLink(nodes, link, scenario.fair);
        queues.Add(InstallQueues(link, scenario.fair));
    }
    std::vector<Ipv4Address> addresses;
    if (scenario.global) {
        addresses = GlobalRoutes(nodes, scenario.links);
    } else {
        GivenRoutes(nodes, scenario.links);
    }
    for (uint32_t f = 0; f < g_flows.size(); ++f) {
        const Flow& flow = g_flows[f];
        InstallFlow(nodes, f, scenario.global ? addresses[flow.src] : SourceOf(f),
                    scenario.global ? addresses[flow.dst] : DestinationOf(f));
    }
    g_unfinished = g_flows.size();
    Simulator::Run();
    Print(Drops(queues, scenario.links));
    return 0;
}
