"""A network of one's own, shown without an experiment: `coterie network --nodes --network`."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.cli import main
from coterie.core.errors import CoterieError
from coterie.preview.from_labels import plans_by_labels, read_fleet, read_histograms
from coterie.preview.network import NetworkView, view_of_files
from coterie.topology.values import UNLIMITED
from pages import DOCS, ROOT, blocks

EXAMPLE = ROOT / "examples" / "base_stations"
PHONES, STATIONS = EXAMPLE / "phones.csv", EXAMPLE / "stations.csv"
PAGE = DOCS / "howto" / "networks.md"
NODES = "node,site,up_mbit_per_s,x\na,s,8,5\nb,s,16,5\nc,t,4,5\nd,t,,5\n"
WAN = "from,to,mbit_per_s,server\ns,t,80,yes\nt,,,yes\n"


def view_of(nodes: Path, network: Path, *sets: str) -> NetworkView:
    return view_of_files(
        nodes, network, 5_000_000, sets, against=False, progress=lambda what, done, of: None
    )


def written(tmp_path: Path, nodes: str = NODES, net: str = WAN) -> tuple[Path, Path]:
    (tmp_path / "n.csv").write_text(nodes)
    (tmp_path / "w.csv").write_text(net)
    return tmp_path / "n.csv", tmp_path / "w.csv"


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["network", *map(str, words)])


def test_the_means_of_edges_and_of_all_are_those_of_the_network() -> None:
    view = view_of(PHONES, STATIONS)
    (member,) = view.members
    assert member.group is not None
    assert view.edge_names == ("north", "south", "west")
    network, group = member.group.network, member.group.grouping
    assert [network.topology.name(int(v)) for v in group.servers] == ["north", "south", "west"]
    up, down = member.group.transfers
    assert member.group.group_s is not None
    assert member.group.group_s.max(axis=0).tolist() == [up.seconds, down.seconds]
    for k in range(3):  # no two stations share a link that the other needs
        nodes = np.flatnonzero(group.z == k)
        alone = network.part(group.z, group.servers, 5_000_000, nodes, nodes)
        assert member.group.group_s[k].sum() == pytest.approx(alone.seconds, rel=1e-3)
    everyone = member.everyone.grouping
    assert network.topology.name(int(everyone.servers[0])) == "core"
    both = network.aggregation(everyone.z, everyone.servers, 5_000_000)
    up, down = member.everyone.transfers
    assert (up + down).seconds == both.seconds


def test_a_member_serves_where_no_place_does_and_that_is_noted(tmp_path: Path) -> None:
    view = view_of(*written(tmp_path, net=WAN.replace("yes", "no")))
    assert view.members[0].group is not None
    assert set(view.members[0].group.grouping.servers.tolist()) <= {0, 1, 2, 3}
    assert view.notes == (
        "no place serves, so a member of each group does; say server = yes, in rows of from and "
        "to, of switches in w.csv to let them serve",
    )
    assert view_of(*written(tmp_path)).notes == ()


def test_what_may_not_be_meant_so_is_noted(tmp_path: Path) -> None:
    nodes = "node,site,may_serve\na,s,no\nb,s,\nc,t,\n"
    net = ",s,t,u\ns,,1,\nt,1,,1\nu,,1,\n"
    no_place, may_not, gaps = view_of(*written(tmp_path, nodes, net)).notes
    assert no_place.startswith("no place serves")
    assert may_not == "1 of 3 devices may not serve"
    assert gaps == "1 of 3 pairs of sites have no link of their own"
    links = "a,b,server,capacity\ns,t,yes,1\nt,,yes,1\n"
    useless, room = view_of(*written(tmp_path, nodes, links)).notes
    assert useless == "places serve, so no device does, whatever may_serve says of it"
    assert room == "the places have room for 2 of 3 devices"
    view = view_of(*written(tmp_path, "node\na\nb\n", ",a,b\na,,1\nb,1,\n"))
    assert view.members[0].group is None
    assert view.notes == (
        "no place serves, so a member of each group does",
        "n.csv has no column edge or site, and every node is on a switch of its own: only the "
        "global mean is shown",
    )


def test_a_faster_network_by_a_setting_with_a_unit(tmp_path: Path) -> None:
    files = written(tmp_path, "node\na\nb\n", "a,b\na,s\nb,s\n")
    slow = view_of(*files, "network.link_mbytes_per_s=8Mbit").members[0].everyone.transfers[0]
    fast = view_of(*files, "network.link_mbytes_per_s=10").members[0].everyone.transfers[0]
    assert slow.seconds > 9 * fast.seconds


def test_the_command_prints_draws_and_tells_a_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("--nodes", PHONES, "--network", STATIONS, "--model-bytes", "5MB")
    assert done.exit_code == 0, done.output
    assert "Means by edge" in done.output
    assert "d_local" not in done.output
    assert (tmp_path / "runs" / "network-phones.html").read_text().count("Places that serve") == 1
    assert (tmp_path / "runs" / "network-phones.png").read_bytes()[:4] == b"\x89PNG"
    done = run("--nodes", PHONES, "--network", STATIONS, "--model-bytes", 5_000_000, "--json")
    (said,) = json.loads(done.stdout)
    assert said["places"] == [
        {"place": "core", "capacity": None},
        {"place": "north", "capacity": 4},
        {"place": "south", "capacity": 4},
        {"place": "west", "capacity": 3},
    ]
    assert said["model_bytes"] == 5_000_000
    assert said["algorithms"][0]["d_local"] is None
    assert said["algorithms"][0]["d_group"]["servers"] == ["north", "south", "west"]


def test_what_cannot_be_shown_is_one_line_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, net = written(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.iterdir())
    files = ("--nodes", nodes, "--network", net)
    for words, said in (
        ((), "needs FILE, or --nodes, --network and --model-bytes; see coterie network --help"),
        (files, "without FILE, --model-bytes must be given too"),
        (("quickstart", *files), "FILE says all that --nodes does; leave one of them out"),
        ((*files, "--model-bytes", "5 parsec"), "--model-bytes must be a size such as 5MB or 5MiB"),
        (
            (*files, "--model-bytes", "5MB", "--set", "algorithm.tau1=2"),
            "--set algorithm.tau1 is not read with --nodes: nothing is trained; leave it out",
        ),
        (
            (*files, "--model-bytes", "5MB", "--set", "network.access_file=x.csv"),
            "--set network.access_file is not read with --nodes: the files say that; leave it out",
        ),
    ):
        done = run(*words)
        assert done.exit_code == 2, done.output
        assert done.output.startswith("coterie: ")
        assert said in done.output
        assert done.output.count("\n") == 1
    assert set(tmp_path.iterdir()) == before


def test_a_nodes_region_and_capacity_are_read(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("node,region,capacity,x\nb,EU,,1\na,,4,1\n")
    told = read_histograms(tmp_path / "n.csv")
    assert told.names == ("a", "b")
    assert told.regions == ("", "EU")
    assert told.capacity is not None
    assert told.capacity.tolist() == [4, UNLIMITED]
    assert read_histograms(PHONES).regions == ("DE",) * 6 + ("NL",) * 3


def test_the_nodes_of_a_network_that_names_them_have_their_own_links_too(tmp_path: Path) -> None:
    nodes = "node,up_mbit_per_s,may_serve,x\nb,8,no,1\na,,yes,1\n"
    own = read_fleet(*written(tmp_path, nodes, "a,b,mbytes_per_s\nb,s,2\na,s,3\n"))
    top = own.topology
    assert top.names == ("a", "b", "s")
    assert (top.bytes_per_s / 1e6).tolist() == [3, 3, 1, 2]
    assert top.may_serve is not None
    assert top.may_serve.tolist() == [True, False]


@pytest.mark.parametrize(
    ("nodes", "net", "says"),
    [
        (NODES + "e,u,,5\n", WAN, "line 6: unknown site 'u'; there is 's', 't'"),
        (NODES + "e,,,5\n", WAN, "line 6: site must be a name, got ''"),
        (NODES, "a,b\ns,u\n", "line 4: unknown site 't'; there is 's', 'u'"),
        ("node,x\na,1\nz,1\n", WAN.replace("s,t", "a,b"), "has no node 'b', which is in"),
        ("node,x\na,1\nb,1\nz,1\n", "from,to,mbit_per_s\na,b,1\n", "node 'z' is not in"),
        (
            "node,may_serve,x\na,yes,1\nb,,1\n",
            "a,b,may_serve\na,s,no\nb,s,\n",
            "line 2: node 'a' m",
        ),
    ],
)
def test_names_that_do_not_match_are_refused(
    tmp_path: Path, nodes: str, net: str, says: str
) -> None:
    with pytest.raises(CoterieError) as refused:
        read_fleet(*written(tmp_path, nodes, net))
    assert says in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path / "n.csv"))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.booleans(), st.booleans())
def test_no_files_do_worse_than_our_error(
    tmp_path: Path, data: st.DataObject, pairs: bool, of_nodes: bool
) -> None:
    net = WAN if pairs else "a,b,server,capacity\ns,t,yes,2\nt,,no,\n"
    assert read_fleet(*written(tmp_path, net=net)).topology.n_devices == 4
    paths = written(tmp_path, net=net)
    content = paths[not of_nodes].read_bytes()
    at, length = data.draw(st.integers(0, len(content))), data.draw(st.integers(0, 30))
    changed = content[:at] + data.draw(st.binary(max_size=5)) + content[at + length :]
    paths[not of_nodes].write_bytes(changed)
    try:
        own = read_fleet(*paths)
    except CoterieError as error:
        assert "\n" not in str(error)
    else:
        assert own.topology.names[: len(own.told.names)] == own.told.names


def test_names_are_checked_before_the_speeds_are_read(tmp_path: Path) -> None:
    """A file that is no CSV from its third line on is not read so far."""
    nodes, net = written(tmp_path, "node,x\na,1\nb,1\n")
    for head in (b",a,z\na,,1\n", b"from,to,mbit_per_s\na,z,1\n"):
        net.write_bytes(head + b"z,1,\n" * 20_000 + b"\xff")
        with pytest.raises(CoterieError, match=r"(node 'b' is not in|has no node 'z'.*in).*w\.csv"):
            read_fleet(nodes, net)


def test_a_fleet_on_sites_is_planned(tmp_path: Path) -> None:
    sets = ["algorithm.num_groups=2", "algorithm.shakes=0"]
    view = plans_by_labels(PHONES, STATIONS, 5_000_000, sets, methods=["coterie", "edge"])
    assert view.fleet.edge_names == ("north", "south", "west")
    servers = {view.node_name(int(v)) for v in view.chosen.grouping.servers}
    assert servers <= {"north", "south", "west", "core"}


def test_the_page_has_the_example_and_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_title = {block.title: block for block in blocks(PAGE)}
    for path in (PHONES, STATIONS):
        assert "\n".join([*by_title[path.name].lines, ""]) == path.read_text()
        (tmp_path / path.name).write_text(path.read_text())
    monkeypatch.chdir(tmp_path)
    shown = [b for b in blocks(PAGE) if b.lines[0].startswith("$ coterie network --nodes phones")]
    assert len(shown) == 1
    (command,) = shown[0].commands
    done = CliRunner().invoke(main, command.split()[1:])
    printed = [line.rstrip() for line in done.output.splitlines()]
    assert [line.rstrip() for line in shown[0].lines[1:]] == printed


LATE = [("a,b,mbytes_per_s", "{},s,fast"), ("source,target,mbytes_per_s", "s,{},0")]


@pytest.mark.parametrize(("head", "last"), LATE)
def test_names_of_links_are_refused_before_their_speeds(
    tmp_path: Path, head: str, last: str
) -> None:
    """The last row has a speed that is none, which is not said while a name is wrong."""
    nodes = "node\na\nb\n"
    good = "\n".join([head, "a,s,1", last.format("b"), ""])
    with pytest.raises(CoterieError, match="line 3: mbytes_per_s must be a finite number above 0"):
        view_of(*written(tmp_path, nodes, good))
    for net, said in (
        (good.replace("a,s,1", "A,s,1"), r"node 'a' is not in .*w\.csv"),
        (good.replace("a,s,1", "a,s,1\nc,s,1"), r"has no node 'c', which is in .*w\.csv"),
    ):
        with pytest.raises(CoterieError, match=said):
            view_of(*written(tmp_path, nodes, net))
    with pytest.raises(CoterieError, match="line 3: unknown site 'x'; there is"):
        view_of(*written(tmp_path, "node,site\nn,s\nm,x\n", good))


def test_a_line_that_is_no_link_is_said_before_names_that_are_missing(tmp_path: Path) -> None:
    net = "a,b,mbytes_per_s\na,s,1\nb,s\n"
    with pytest.raises(CoterieError, match="line 3: must have 3 values, got 2"):
        view_of(*written(tmp_path, "node\na\nb\n", net))


def test_who_is_a_server_or_in_another_tier_is_no_node_that_is_missing(tmp_path: Path) -> None:
    net = "a,b,server\na,s,\nb,s,\nroot,s,yes\n"
    view = view_of(*written(tmp_path, "node\na\nb\n", net))
    assert view.topology.n_devices == 2
