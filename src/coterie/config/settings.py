"""The settings of an experiment, section by section: default, bounds, and what each is."""

from dataclasses import dataclass, field
from typing import Literal

from coterie.config.schema import Options, setting
from coterie.data import DATASETS
from coterie.data.targets import TARGETS, metric_word
from coterie.models import MODELS
from coterie.network import CLOCKS, PROFILES
from coterie.partition import PARTITIONS, partition_name
from coterie.simulation.algorithm import Algorithm
from coterie.simulation.algorithms import ALGORITHMS, find_algorithm
from coterie.simulation.measures import MEASURES, measure_word
from coterie.simulation.measures import USUAL as USUAL_MEASURES
from coterie.simulation.schedule import NEVER
from coterie.simulation.search import GROUPINGS
from coterie.topology import TOPOLOGIES

MANY = 10**9  # more of anything is a slip of the pen


@dataclass(frozen=True)
class DataConfig:
    """Which examples."""

    name: str = setting(
        "mnist-f-mini",
        "dataset, or 'my_pkg.data:load'",
        choices=DATASETS,
        paths=True,
        also=("dataset",),
    )
    path: str = setting("", "the dataset's files; empty: where 'coterie data' put them")
    sample: float = setting(1.0, "share of the data to use, in whole users", above=0, at_most=1)
    split: Literal["auto", "pooled", "per-node", "official"] = setting(
        "auto",
        "what is tested on: a fifth of all, a fifth of each node's, or the official test part; "
        "auto: per-node where nodes, groups or clusters end with models of their own, else pooled",
    )
    scored: Literal["test", "val"] = setting(
        "test", "part that a run is scored on; val: a search of settings that sees no test part"
    )
    min_examples: int = setting(
        1, "users with fewer examples are left out", at_least=1, at_most=MANY
    )
    num_users: int | Literal["all"] = setting(
        "all", "keep so many users, those with most examples", at_least=1, at_most=MANY
    )
    window: int = setting(
        80, "shakespeare: characters that are an example", at_least=2, at_most=4096
    )
    target: tuple[str, ...] = setting((), "table: the column to predict, or several of them")
    user: str = setting("", "table: the column that says whose a row is")
    strata: str = setting(
        "", "table: the column that rows are dealt and split by; empty: by the target"
    )
    features: tuple[str, ...] = setting(
        (), "table: columns to predict from; empty: all but target and user"
    )
    missing: Literal["auto", "refuse", "drop", "mean"] = setting(
        "auto",
        "table, heart: rows with something missing are refused, dropped, or given the column's "
        "mean; auto: heart drops them, table refuses",
    )
    scale: Literal["auto", "train", "none"] = setting(
        "auto",
        "numbers of x are standardised by the training part, or not; auto: those of table, heart",
    )
    side: int = setting(
        0,
        "images: pixels in height and width that pictures are resized to; 0: they have one size",
        at_least=0,
        at_most=4096,
    )


@dataclass(frozen=True)
class PartitionConfig:
    """Which node holds what, under which network edge."""

    kind: str = setting(
        "Dtt",
        "how examples are dealt; flwr-datasets' names work too",
        choices=PARTITIONS,
        canon=partition_name,
        also=("partitioner",),
    )
    num_nodes: int | Literal["auto"] = setting(
        "auto",
        "devices; auto: 100, or each user of 'natural', or as partition.file says",
        at_least=1,
        also=("num_clients", "total_clients", "num_supernodes", "num_partitions"),
        at_most=MANY,
    )
    num_edges: int | Literal["auto"] = setting(
        "auto",
        "network edges; auto: 10, or fewer if there are fewer nodes, or as partition.file says",
        at_least=1,
        also=("total_silos",),
        at_most=MANY,
    )
    placement: Literal["paper", "random", "by_similarity"] = setting(
        "paper", "which nodes sit under the same edge"
    )
    alpha: float = setting(0.5, "dirichlet: small is uneven", above=0, at_most=1e6)
    min_partition_size: int = setting(
        1, "dirichlet: examples of the smallest node", at_least=1, at_most=MANY
    )
    shards_per_node: int = setting(
        2, "shards of each node", at_least=1, also=("num_shards_per_partition",), at_most=MANY
    )
    classes_per_node: int = setting(
        2,
        "pathological: classes of each node",
        at_least=1,
        also=("num_classes_per_partition",),
        at_most=MANY,
    )
    spread: Literal["normal", "exponential", "lognormal"] = setting("normal", "how counts vary")
    sd: float = setting(
        1.0, "standard deviation of the counts (lognormal: of their log)", at_least=0, at_most=1e6
    )
    file: str = setting("", "your own partition: a CSV or Parquet of example, node, edge")


@dataclass(frozen=True)
class TaskConfig:
    """What is learnt of them."""

    name: str = setting(
        "auto",
        "what is learnt, which decides the loss, or 'mine:task'; auto: what the dataset is for",
        choices=("auto", *TARGETS),
        paths=True,
    )
    metrics: tuple[str, ...] = setting(
        (),
        "what the test part is measured by, names or 'mine:metric'; empty: all of the task's",
        choices=tuple(dict.fromkeys(name for t in TARGETS.values() for name in t.metrics)),
        paths=True,
        canon=metric_word,
    )


@dataclass(frozen=True)
class ModelConfig:
    """What is trained."""

    name: str = setting("sr", "model, or 'my_pkg.models:make'", choices=MODELS, paths=True)
    init: Literal["torch", "reference"] = setting(
        "torch", "first weights: as torch draws them, or as the paper's simulator did"
    )
    weights: str = setting("", "a run's folder, or its model.safetensors, to begin from")
    adapters: int = setting(
        0,
        "rank of adapters: they alone are trained and sent, the rest stays as it begins; 0: none",
        at_least=0,
        at_most=4096,
    )


@dataclass(frozen=True)
class NetworkConfig:
    """How the nodes are joined."""

    topology: str = setting("fat-tree", "network", choices=TOPOLOGIES)
    link_mbytes_per_s: float = setting(100.0, "speed of a link", at_least=1e-6, at_most=1e9)
    latency_s: float = setting(0.001, "latency of a link", at_least=0, at_most=86_400)
    access_mbytes_per_s: float | Literal["auto"] = setting(
        "auto", "speed of a node's own link; auto: as the others", at_least=1e-6, at_most=1e9
    )
    access_latency_s: float | Literal["auto"] = setting(
        "auto", "latency of a node's own link; auto: as the others", at_least=0, at_most=86_400
    )
    access_file: str = setting(
        "",
        "a CSV of the nodes' own links: node, up_mbytes_per_s, down_mbytes_per_s, latency_s, site",
    )
    degree: int = setting(4, "jellyfish: links per switch", at_least=2, at_most=MANY)
    k: int | Literal["auto"] = setting(
        "auto", "k-ary-fat-tree: pods; auto: the fewest with room", at_least=2, at_most=MANY
    )
    alpha: float = setting(0.4, "waxman: likelihood of links", above=0, at_most=1)
    beta: float = setting(0.2, "waxman: how far links reach", above=0, at_most=1e6)
    file: str = setting("", "file: the graph; matrix: MByte/s between nodes")
    latency_file: str = setting("", "matrix: seconds between nodes")
    routing: Literal["ecmp", "single"] = setting("ecmp", "which shortest path a flow takes")
    clock: str = setting("flow", "what times transfers", choices=CLOCKS)
    tcp: str = setting("lossless", "how TCP and queues behave", choices=PROFILES)
    time_limit_s: float = setting(
        600.0, "ns3: the most a transfer may take to simulate", above=0, at_most=1e6
    )
    procedure: Literal["full", "reference"] = setting(
        "full", "what is timed: the whole model both ways, or 10,240 bytes scaled, as the paper did"
    )
    combine: Literal["none", "all", "searched"] = setting(
        "none", "whose models are averaged under their edge first; searched: as the paper did"
    )


@dataclass(frozen=True)
class ComputeConfig:
    """How fast the nodes are."""

    flops: Literal["analytic", "reference"] = setting(
        "analytic", "operations per example: counted, or as the paper's simulator charged"
    )
    flops_per_example: int | Literal["auto"] = setting(
        "auto",
        "operations per example, forward and backward; auto: as flops says",
        at_least=1,
        at_most=1e15,
    )
    gflops: float = setting(5.0, "speed of a node, or their mean", at_least=1e-9, at_most=1e12)
    speeds: Literal["constant", "uniform", "lognormal", "file"] = setting(
        "constant", "how nodes' speeds differ"
    )
    spread: float = setting(
        0.5,
        "uniform: half width over the mean, below 1; lognormal: standard deviation of the log",
        at_least=0,
        at_most=10,
    )
    file: str = setting("", "file: a CSV with the columns node and gflops")


USUAL = 5, 1, 5  # num_groups, tau1, tau2


@dataclass(frozen=True)
class AlgorithmConfig:
    """Who trains with whom, and when what is averaged."""

    name: str = setting(
        "fedavg-ic", "algorithm, or 'my_pkg.algos:feddyn'", choices=ALGORITHMS, paths=True
    )
    options: Options = setting(  # noqa: RUF009
        dict, "options of the algorithm by name, such as {mu = 0.1}; see 'coterie list algorithms'"
    )
    groups: Literal["auto", "none", "edge", "search"] = setting(
        "auto", "who trains together; auto: as the algorithm says; edge: the network edges"
    )
    tau1: int | Literal["auto"] = setting(
        USUAL[1],
        "local steps per group mean; auto: chosen by a pilot",
        at_least=1,
        way_out="use tau1 = 1 for a group mean every step",
        also=("num_local_update", "kappa1", "local_epochs", "local_rounds"),
        at_most=MANY,
    )
    tau2: int | Literal["auto", "never"] = setting(
        USUAL[2],
        "group means per global mean; never: groups keep their own models; auto: by a pilot",
        at_least=1,
        at_most=NEVER - 1,
        way_out="use tau2 = 1 for plain FedAvg",
        also=("num_edge_aggregation", "kappa2", "group_comm_round"),
    )
    num_groups: int | Literal["auto"] = setting(
        USUAL[0],
        "groups (K); auto: chosen by a pilot",
        at_least=1,
        also=("group_num", "K"),
        at_most=MANY,
    )
    grouping: str = setting(
        "coterie",
        "search, or 'my_pkg.groups:plan'",
        choices=GROUPINGS,
        paths=True,
        also=("group_method",),
    )
    alpha_iid: float = setting(1.0, "weight of the divergence cost", at_least=0, at_most=1e12)
    alpha_comm: float = setting(1.0, "weight of the transfer cost", at_least=0, at_most=1e12)
    evidence: Literal["gradients", "sketch", "labels"] = setting(
        "gradients", "what nodes show a search that compares their data"
    )
    sketch_size: int = setting(
        256, "sketch: numbers that each node uploads", at_least=1, at_most=MANY
    )
    privacy_epsilon: float = setting(
        0.0,
        "sketch: epsilon of each node's differential privacy; 0: no noise",
        at_least=0,
        at_most=1e12,
    )
    privacy_delta: float = setting(1e-5, "sketch: delta of it", above=0, at_most=0.5)
    privacy_clip: float = setting(1.0, "sketch: longest sketch before noise", above=0, at_most=1e12)
    charge_grouping: bool = setting(True, "charge what nodes show the search to the clock")
    min_group_size: int = setting(1, "least nodes of a group", at_least=1, at_most=MANY)
    max_group_size: int | Literal["auto"] = setting(
        "auto", "most nodes of a group", at_least=1, at_most=MANY
    )
    max_hops: int | Literal["auto"] = setting(
        "auto", "farthest a node may be from its group's server", at_least=0, at_most=MANY
    )
    capacity_file: str = setting(
        "", "a CSV with the columns node and capacity: the most members each can serve"
    )
    regroup_every: int = setting(
        0, "global means between plans; 0: plan once", at_least=0, at_most=MANY
    )
    regroup_drift: float = setting(
        0.0, "plan again when Delta has grown by this part; 0: never", at_least=0, at_most=1e9
    )
    target_accuracy: float = setting(
        0.0,
        "auto: validation accuracy to reach soonest; 0: FedAvg's loss in the end",
        at_least=0,
        at_most=1,
    )
    target_loss: float = setting(
        0.0, "auto: training loss to reach soonest instead", at_least=0, at_most=1e38
    )
    max_gbytes: float = setting(
        0.0, "auto: most GByte over all links until the target; 0: any", at_least=0, at_most=1e12
    )
    retune: bool = setting(True, "auto: choose tau1 and tau2 again when another pays")
    shakes: int | Literal["auto"] = setting(
        "auto",
        "coterie: searches from a shaken start; auto: 500 over the nodes",
        at_least=0,
        at_most=MANY,
    )
    budget_s: float = setting(
        0.0,
        "coterie: seconds to search instead; its answer then depends on speed",
        at_least=0,
        at_most=1e6,
    )
    anneal: bool = setting(False, "coterie: take worse groups on the way now and then")

    @property
    def made(self) -> Algorithm:
        """The algorithm that the settings name."""
        return find_algorithm(self.name, self.options, self.groups)

    @property
    def open(self) -> tuple[str, ...]:
        """Settings that a run is to choose itself."""
        return tuple(k for k in ("num_groups", "tau1", "tau2") if getattr(self, k) == "auto")

    @property
    def usual(self) -> tuple[int, int, int]:
        """num_groups, tau1 and tau2, the defaults where they are open."""
        K, tau1, tau2 = self.num_groups, self.tau1, self.tau2
        open_K, open_tau1, open_tau2 = USUAL
        return (
            open_K if K == "auto" else K,
            open_tau1 if tau1 == "auto" else tau1,
            open_tau2 if tau2 == "auto" else NEVER if tau2 == "never" else tau2,
        )


@dataclass(frozen=True)
class TrainConfig:
    """How local steps run."""

    steps: int = setting(
        100, "local steps (T)", at_least=1, also=("num_server_rounds", "rounds"), at_most=MANY
    )
    step_unit: Literal["epoch", "batch"] = setting(
        "epoch", "what a local step is: a pass over the node's data (epoch), or one batch"
    )
    sampling: Literal["epoch", "reference"] = setting(
        "epoch",
        "how a pass is cut into batches: each example once, or every batch drawn anew from all, as "
        "the paper's simulator did",
    )
    batch_size: int | Literal["auto", "full"] = setting(
        "auto", "examples per batch; auto: full for sr, else 128", at_least=1, at_most=MANY
    )
    lr: float = setting(0.1, "learning rate", above=0, at_most=1e38, also=("learning_rate", "eta"))
    lr_decay: float = setting(0.99, "factor on the rate every step", above=0, at_most=1)
    eval_every: int = setting(1, "evaluate every so many global means", at_least=1, at_most=MANY)
    measure: tuple[str, ...] = setting(
        USUAL_MEASURES,
        "what is measured then; loss/10: every tenth time",
        choices=MEASURES,
        canon=measure_word,
        also=("metrics",),
    )
    validate: bool = setting(True, "score the validation part, too, once a run is complete")
    measure_groups: bool = setting(False, "score groups' models after group means, too")
    engine: Literal["vectorized", "sequential", "ray"] = setting(
        "vectorized",
        "how local steps are computed; sequential: plainly, to check others by; ray: on a cluster",
    )
    device: Literal["cpu", "cuda", "mps"] = setting("cpu", "where torch runs")
    precision: Literal["float32", "float64"] = setting(
        "float32",
        "of a model's arithmetic; float64 shows whether rounding matters; 4 bytes are sent anyway",
        also=("dtype",),
    )
    threads: int | Literal["auto"] = setting(
        "auto",
        "cores that train one run, whose number changes no digit; auto: as --workers leaves",
        at_least=1,
        also=("workers",),
        at_most=MANY,
    )


@dataclass(frozen=True)
class OptimizerConfig:
    """What nodes and the server do besides plain SGD and a mean."""

    momentum: float = setting(
        0.0, "of local steps; starts afresh after every mean", at_least=0, at_most=1
    )
    weight_decay: float = setting(0.0, "of local steps", at_least=0, at_most=1e38)
    fedprox: float = setting(
        0.0,
        "FedProx's mu: pull of local steps towards the model that a node was given",
        at_least=0,
        at_most=1e38,
        also=("mu", "proximal_mu", "prox"),
    )
    scaffold: bool = setting(False, "correct local steps by SCAFFOLD; twice the bytes globally")
    server: Literal["mean", "momentum", "adam"] = setting(
        "mean", "what the server makes of a global mean (FedAvg, FedAvgM, FedAdam)"
    )
    server_lr: float = setting(1.0, "of the server; 0.01 to 0.1 for adam", above=0, at_most=1e38)
    server_momentum: float = setting(0.9, "of the server; adam's beta1", at_least=0, at_most=1)
    server_beta2: float = setting(0.99, "adam's, of the server", at_least=0, at_most=1)
    server_epsilon: float = setting(
        1e-3, "adam's, of the server", above=0, also=("tau",), at_most=1e38
    )


@dataclass(frozen=True)
class ParticipationConfig:
    """Which nodes take part in a round."""

    fraction: float = setting(
        1.0,
        "share of the nodes that are asked in every round",
        above=0,
        at_most=1,
        also=("participation", "fraction_fit", "fraction_train", "client_fraction"),
    )
    sampled: Literal["group", "all"] = setting("group", "fraction of every group, or of all nodes")
    dropout: float = setting(
        0.0, "probability that a node vanishes in a round", at_least=0, at_most=1
    )
    deadline_s: float = setting(
        0.0,
        "longest local work that a mean waits for, in simulated seconds; 0: any",
        at_least=0,
        at_most=1e12,
    )
    jitter: float = setting(
        0.0, "how speeds vary by round: standard deviation of the log", at_least=0, at_most=10
    )


@dataclass(frozen=True)
class RayConfig:
    """Where runs run on Ray; what they give does not depend on it, so that they go on anywhere."""

    address: str = setting(
        "local", "local: a cluster on this machine alone; auto, HOST:PORT or ray://HOST:PORT: yours"
    )
    actors: int | Literal["auto"] = setting(
        "auto",
        "engine = ray: processes that share a run's nodes; auto: as many as CPUs are for",
        at_least=1,
        at_most=10_000,
    )
    cpus_per_actor: int = setting(1, "CPUs, and threads, of each", at_least=1, at_most=10_000)
    gpus_per_actor: float = setting(
        0.0, "GPUs of each; 0.5: two share one", at_least=0, at_most=10_000
    )
    cpus_per_run: int = setting(
        1, "sweep --engine ray: CPUs, and threads, of a run", at_least=1, at_most=10_000
    )
    gpus_per_run: float = setting(
        0.0, "sweep --engine ray: GPUs of a run", at_least=0, at_most=10_000
    )
    object_store_mbytes: int | Literal["auto"] = setting(
        "auto",
        "local: shared memory for data and models; auto: as Ray does",
        at_least=80,
        at_most=MANY,
    )


@dataclass(frozen=True)
class Config:
    """One run, fully described."""

    seed: int = setting(
        0, "decides every random choice", at_least=0, at_most=2**63 - 1, also=("random_seed",)
    )
    label: str = setting(  # what a run is called, not what it is
        "",
        "name of the run's line in tables and figures; empty: made from the settings",
        compare=False,
    )
    data: DataConfig = field(default_factory=DataConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    partition: PartitionConfig = field(default_factory=PartitionConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    network: NetworkConfig = field(default_factory=NetworkConfig)
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    algorithm: AlgorithmConfig = field(default_factory=AlgorithmConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    participation: ParticipationConfig = field(default_factory=ParticipationConfig)
    ray: RayConfig = field(default_factory=RayConfig, compare=False)  # where, not what
