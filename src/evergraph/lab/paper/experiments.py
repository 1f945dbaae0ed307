"""The catalogue: every table and figure of the paper as an experiment, one declaration each.

To add one, append an :class:`Experiment` to the list; the command, the files it writes and the
document follow. The file is long because it is a table; what a sentence of the paper means as a
measurement is in :mod:`evergraph.lab.paper.contrasts`, where a value stands in a run's results in
:mod:`evergraph.lab.paper.metrics`, and the numbers that the paper prints in ``paper_numbers.yaml``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from evergraph.config import Variant, resolve
from evergraph.errors import unknown_name
from evergraph.lab.paper import metrics as m
from evergraph.lab.paper.contrasts import (
    above,
    above_best,
    deviation_at,
    negated,
    rises,
    steady,
    steeper,
    trend,
    varies_less,
)
from evergraph.lab.paper.experiment import Claim, Experiment, Facts, Figure, Row
from evergraph.stream.datasets import load_graph

Rows = Callable[[Facts], Sequence[Row]]


def variants(methods: Mapping[str, str] | Sequence[str]) -> Rows:
    """Lists rows that are the same for every dataset: name → method, or methods by their names."""
    pairs = methods.items() if isinstance(methods, Mapping) else zip(methods, methods, strict=True)
    rows = [Row(name, method) for name, method in pairs]
    return lambda facts: rows


# Rows over the size of the buffer, which three experiments share.
PERCENT = (1, 2, 3, 4, 5)
BUFFER_AXIS = "buffer, % of training nodes"


def sizes(methods: Mapping[str, str]) -> Rows:
    """Gives methods buffers of 1 to 5 % of all training nodes, one node per class at least."""
    return lambda facts: [
        Row(
            f"{series} {percent} %",
            f"{method}{',' if ':' in method else ':'}buffer_size="
            f"{max(facts.num_classes, round(facts.num_train * percent / 100))}",
            series,
            percent,
        )
        for series, method in methods.items()
        for percent in PERCENT
    ]


def at(series: str, *percents: int) -> list[str]:
    """Names the rows of a series at some sizes, all by default."""
    return [f"{series} {percent} %" for percent in percents or PERCENT]


def suffers(other: str) -> dict[str, Claim]:
    """Claims that a method suffers more from a small buffer than DSLR, and is behind it."""
    return {
        f"as its buffer shrinks, {other} loses more PM than DSLR": steeper(
            at(other), at("dslr"), "pm"
        ),
        f"as its buffer shrinks, {other}'s FM rises more than DSLR's": steeper(
            at("dslr"), at(other), "fm"
        ),
        f"DSLR's PM is above {other}'s on average over all sizes": (
            "Appendix J.1, Figure 11",
            above(at("dslr"), at(other), "pm"),
        ),
    }


# The methods that the paper compares.
BASELINES = ("lwf", "ewc", "gem", "mas", "continual-gnn", "twp", "er-gnn", "rclg")
NO_REPLAY = ("lwf", "ewc", "mas", "twp")
REHEARSAL = ("continual-gnn", "er-gnn", "dslr")
WITHOUT_SL = "dslr w/o SL"
MF_AND_CD = {"MF": "dslr:structure=none,selector=mf", "CD": "dslr:structure=none"}

# The rows of the ablation; λ is the paper's 0.5 wherever both losses are on.
MF, ER_GNN, CD = "(1) MF", "(1) ER-GNN", "(2) CD"
MF_SL = "(3) MF + SL"
LINK, NODE, BOTH = "(4)-1 CD + SL (link)", "(4)-2 CD + SL (node)", "(4)-3 CD + SL (both)"
RAISED = "(5) CD + homophily up"
ABLATION = {
    MF: "dslr:structure=none,selector=mf",
    ER_GNN: "er-gnn",
    CD: "dslr:structure=none",
    MF_SL: "dslr:selector=mf,lam=0.5",
    LINK: "dslr:lam=1.0",
    NODE: "dslr:lam=0.0",
    BOTH: "dslr:lam=0.5",
    RAISED: "dslr:structure=homophily",
    "DSLR as tuned": "dslr",
}


def better(first: str, second: str, text: str) -> dict[str, Claim]:
    """Claims that one row is better than another in PM and in FM."""
    return {
        f"{text} (PM)": above(first, second, "pm"),
        f"{text} (FM)": above(second, first, "fm"),
    }


# Every selector in DSLR without structure learning; ``importance`` is ContinualGNN's.
SELECTORS = {
    **{
        name: f"dslr:structure=none,selector={name}"
        for name in ("random", "kmeans", "importance", "mf", "cm")
    },
    "cd": "dslr:structure=none",
}

# One hyper-parameter at a time, in the paper's ranges: key → title and values.
RANGES: dict[str, tuple[str, tuple[float, ...]]] = {
    "tau": ("τ", (0.75, 0.8, 0.85, 0.9, 0.95)),
    "r": ("r", (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5)),
    "lam": ("λ", (0.0, 0.25, 0.5, 0.75, 1.0)),
    "num_candidates": ("K", (25, 50, 75, 100)),
}
BETAS = (0.01, 0.05, 0.1, 0.2, 0.3)
RADII = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
REFINED, ADDED = (0.25, 0.5, 0.75, 1.0), (1, 2, 3, 4, 5)


def refined(ratio: float, added: int) -> str:
    """Names a row of the heat map."""
    return f"{round(100 * ratio)} %, N = {added}"


def probes(facts: Facts) -> list[Row]:
    """Lists every class that can be forgotten, with nodes kept at five places of its homophily."""
    return [
        Row(
            f"class {label + 1} at {position:g}",
            f"homophily-probe:probed_class={label},position={position}",
            f"class {label + 1}",
            position,
        )
        for label in range((facts.num_tasks - 1) * facts.classes_per_task)
        for position in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]


#: What the frontier compares: the analytic learner down to kilobytes, the paper's method, replay,
#: and the two ends of the scale; ``rank=15`` is within the paper's buffer.
FRONTIER = (
    "analytic",
    "analytic:statistics=refresh@analytic-refresh",
    "analytic:precision=single@analytic-single",
    "analytic:precision=single,rank=64@analytic-rank-64",
    "analytic:precision=single,rank=15@analytic-rank-15",
    "analytic:precision=single,rank=3@analytic-rank-3",
    "analytic:precision=single,rank=15,projection=256@analytic-256-rank-15",
    "analytic:precision=single,rank=7,projection=64@analytic-64-rank-7",
    "dslr",
    "replay:selector=mf@replay-mf",
    "replay:selector=cd@replay-cd",
    "replay",
    *("er-gnn", "gem", "rclg", "continual-gnn", "lwf", "ewc", "mas", "twp", "joint", "finetune"),
)

SIZES = {
    "nodes": "nodes",
    "edges": "edges",
    "features": "features",
    "classes_per_task": "classes per task",
    "tasks": "tasks",
}
SETTINGS = {
    "beta": "β",
    "lam": "λ",
    "num_neighbors": "N",
    "num_candidates": "K",
    "tau": "τ",
    "r": "r",
    "buffer_size": "buffer size",
    "lr": "learning rate",
}


def dataset_sizes(facts: Facts, data_root: Path | None) -> Mapping[str, float]:
    """Counts what was loaded, undirected edges once and without loops."""
    variant = Variant.parse_dataset(facts.dataset)
    graph = load_graph(variant.name, data_root, variant.options or None)
    return {
        "nodes": graph.num_nodes,
        "edges": graph.edges.shape[1],
        "features": graph.x.shape[1],
        "classes_per_task": facts.classes_per_task,
        "tasks": facts.num_tasks,
    }


def dslr_settings(facts: Facts, data_root: Path | None) -> Mapping[str, float]:
    """Reads the settings that a run of DSLR takes by default."""
    config = resolve(Variant.parse_dataset(facts.dataset), Variant.parse("dslr"), 0)
    values = {**config.settings, "lr": config.training.lr}
    return {key: float(values[key]) for key in SETTINGS}


_ALL = (
    Experiment(
        id="main",
        title="PM and FM of nine methods",
        source="Table 2",
        rows=variants((*BASELINES, "dslr")),
        metrics=m.ACCURACY,
        figure=Figure("points", ("pm", "fm")),
        where="Section 5.1.1 (1)",
        says={
            "DSLR's PM is above that of the best baseline": above_best("dslr", BASELINES, "pm"),
            "DSLR's FM is below that of the best baseline": negated(
                above_best("dslr", BASELINES, "fm")
            ),
            "DSLR varies less over seeds than the baselines do on average": varies_less(
                "dslr", BASELINES, "pm"
            ),
            "ER-GNN's PM is above that of the best baseline without replay": (
                "Section 5.1.1 (2)",
                above_best("er-gnn", NO_REPLAY, "pm"),
            ),
            "ContinualGNN's PM is above that of the best baseline without replay": (
                "Section 5.1.1 (2)",
                above_best("continual-gnn", NO_REPLAY, "pm"),
            ),
            "ER-GNN's FM is above that of the best other baseline": (
                "Section 5.1.1 (2)",
                above_best("er-gnn", [name for name in BASELINES if name != "er-gnn"], "fm"),
            ),
        },
    ),
    Experiment(
        id="buffer-homophily",
        title="Homophily of replayed nodes per class",
        source="Table 1",
        rows=lambda facts: [Row(*pair, view="before") for pair in MF_AND_CD.items()],
        metrics=(*m.CLASS_HOMOPHILY, m.HOMOPHILY),
        figure=Figure("groups", tuple(metric.key for metric in m.CLASS_HOMOPHILY)),
        where="Section 1, Table 1",
        says={
            "nodes kept by CD have a lower homophily than those kept by MF": above(
                "MF", "CD", "homophily"
            ),
        },
        notes=("The deviations printed in the paper are over nodes, ours over seeds.",),
    ),
    Experiment(
        id="homophily-forgetting",
        title="Forgetting of a class over the homophily of its replayed nodes",
        source="Figure 2, Appendix A",
        rows=probes,
        metrics=(m.PROBED_HOMOPHILY, m.FORGETTING),
        figure=Figure("scatter", ("homophily", "forgetting")),
        quick_rows=tuple(f"class {label} at {p}" for label in (1, 3) for p in ("0", "0.5", "1")),
        where="Section 1, Figure 2, Appendix A",
        says={
            "the less homophilous its replayed nodes, the more a class is forgotten": negated(
                trend
            ),
            "forgetting falls faster over the lower half of homophily than over the upper": (
                lambda t: trend(t, "upper") - trend(t, "lower")
            ),
            "forgetting varies more over seeds at the highest homophily than at the lowest": (
                lambda t: deviation_at(t, most=True) - deviation_at(t, most=False)
            ),
        },
        notes=("Nodes are sorted by the labels that may be read (decision 0021).",),
    ),
    Experiment(
        id="buffer-size",
        title="Rehearsal methods with buffers of 1 to 5 % of the training nodes",
        source="Figures 4 and 11",
        rows=sizes({name: name for name in REHEARSAL}),
        metrics=m.ACCURACY,
        figure=Figure("lines", ("pm", "fm"), BUFFER_AXIS),
        quick_rows=tuple(row for name in REHEARSAL for row in at(name, 1, 5)),
        where="Section 5.1.1 (3), Figure 4",
        says={**suffers("continual-gnn"), **suffers("er-gnn")},
    ),
    Experiment(
        id="diversity-effect",
        title="Effect of diversity: DSLR without structure learning against ER-GNN",
        source="Figures 5 and 12",
        rows=sizes({"er-gnn": "er-gnn", WITHOUT_SL: "dslr:structure=none"}),
        metrics=m.ACCURACY,
        figure=Figure("lines", ("pm", "fm"), BUFFER_AXIS),
        quick_rows=(*at(WITHOUT_SL, 1, 5), *at("er-gnn", 1, 5)),
        where="Section 5.1.2, Figure 5",
        says={
            "PM is above ER-GNN's on average over all sizes": above(
                at(WITHOUT_SL), at("er-gnn"), "pm"
            ),
            "FM is below ER-GNN's on average over all sizes": above(
                at("er-gnn"), at(WITHOUT_SL), "fm"
            ),
            "from 1 to 3 % PM rises more than ER-GNN's": lambda t: (
                (t(f"{WITHOUT_SL} 3 %", "pm") - t(f"{WITHOUT_SL} 1 %", "pm"))
                - (t("er-gnn 3 %", "pm") - t("er-gnn 1 %", "pm"))
            ),
            "from 3 to 5 % the lead in PM shrinks": lambda t: (
                (t(f"{WITHOUT_SL} 3 %", "pm") - t("er-gnn 3 %", "pm"))
                - (t(f"{WITHOUT_SL} 5 %", "pm") - t("er-gnn 5 %", "pm"))
            ),
        },
        notes=("DSLR without structure learning has DSLR's settings, ER-GNN its own.",),
    ),
    Experiment(
        id="diversity",
        title="Diversity of the buffer and of correctly predicted nodes",
        source="Table 3",
        rows=variants({"er-gnn": "er-gnn", WITHOUT_SL: "dslr:structure=none"}),
        metrics=(m.DIVERSITY, m.CORRECT_DIVERSITY),
        figure=Figure("points", ("diversity", "correct_diversity")),
        where="Section 5.1.2, Table 3",
        says={
            "the buffer of coverage is more diverse than ER-GNN's": above(
                WITHOUT_SL, "er-gnn", "diversity"
            ),
            "the nodes it predicts correctly are more diverse": above(
                WITHOUT_SL, "er-gnn", "correct_diversity"
            ),
        },
    ),
    Experiment(
        id="structure-effect",
        title="Effect of structure learning over buffer sizes",
        source="Figures 6 and 13",
        rows=sizes({WITHOUT_SL: "dslr:structure=none", "dslr": "dslr"}),
        metrics=m.ACCURACY,
        figure=Figure("lines", ("pm", "fm"), BUFFER_AXIS),
        quick_rows=(*at("dslr", 1, 5), *at(WITHOUT_SL, 1, 5)),
        where="Section 5.1.3, Figure 6",
        says={
            "structure learning raises PM on average over all sizes": above(
                at("dslr"), at(WITHOUT_SL), "pm"
            ),
            "structure learning lowers FM on average over all sizes": above(
                at(WITHOUT_SL), at("dslr"), "fm"
            ),
            "its lead in PM grows as the buffer shrinks": steeper(at(WITHOUT_SL), at("dslr"), "pm"),
            "with 1 % it does as well, within one point of PM, as without at 4 %": (
                "Section 5.1.3, Figure 6 (a)",
                above("dslr 1 %", f"{WITHOUT_SL} 4 %", "pm", within=1.0),
            ),
            "with 1 % its FM is as low, within one point, as without at 2 %": (
                "Appendix J.3, Figure 13 (b)",
                above(f"{WITHOUT_SL} 2 %", "dslr 1 %", "fm", within=1.0),
            ),
        },
    ),
    Experiment(
        id="structure-heatmap",
        title="Share of the buffer that is refined, and neighbours added to each node",
        source="Figures 7 and 14",
        rows=lambda facts: [
            Row(
                refined(ratio, n),
                f"dslr:sl_ratio={ratio},num_neighbors={n}",
                *(f"N = {n}", 100 * ratio, n),
            )
            for n in ADDED
            for ratio in REFINED
        ],
        metrics=m.ACCURACY,
        figure=Figure("heatmap", ("pm", "fm"), "refined part of the buffer, %", "N"),
        quick_rows=tuple(refined(ratio, n) for ratio in (0.5, 1.0) for n in (1, 5)),
        where="Section 5.1.3, Figure 7",
        says={
            "PM rises with the share that is refined": rises(None, "pm"),
            "FM falls with the share that is refined": negated(rises(None, "fm")),
            "N = 5 is not better by a point than the best smaller N at a ratio of 100 %": negated(
                above_best(refined(1.0, 5), [refined(1.0, n) for n in ADDED[:-1]], "pm", -1.0)
            ),
        },
    ),
    Experiment(
        id="candidates",
        title="Structure inference over the entire graph and over candidates",
        source="Figure 8",
        rows=variants({"entire": "dslr:candidates=entire", "candidates": "dslr"}),
        metrics=(*m.ACCURACY, m.INFERENCE),
        figure=Figure("points", ("pm", "fm", "inference")),
        where="Section 5.2.1, Figure 8 (c)",
        says={
            "candidates need less time for inference": above("entire", "candidates", "inference"),
            "candidates give a higher PM": (
                "Section 5.2.1, Figure 8 (a)",
                above("candidates", "entire", "pm"),
            ),
            "candidates give a lower FM": (
                "Section 5.2.1, Figure 8 (b)",
                above("entire", "candidates", "fm"),
            ),
        },
    ),
    Experiment(
        id="ablation",
        title="Components of DSLR",
        source="Table 4",
        rows=variants(ABLATION),
        metrics=m.ACCURACY,
        figure=Figure("points", ("pm", "fm")),
        where="Section 5.2.2, Table 4",
        says={
            **better(CD, MF, "coverage is better than the class mean"),
            **better(MF_SL, MF, "structure learning improves the class mean"),
            **better(BOTH, CD, "structure learning improves coverage"),
            **better(BOTH, LINK, "both losses are better than the link loss alone"),
            **better(BOTH, NODE, "both losses are better than the node loss alone"),
            **better(BOTH, RAISED, "learning is better than only raising homophily"),
            "DSLR's PM is above that of every other row": above_best(
                BOTH, (MF, CD, MF_SL, LINK, NODE, RAISED), "pm"
            ),
        },
        notes=(
            "Row (1) is run twice: MF with DSLR's settings, and ER-GNN with its own.",
            "Rows (3) and (4)-3 have the paper's λ = 0.5; the last row is DSLR with its preset.",
        ),
    ),
    Experiment(
        id="homophily-variants",
        title="Homophily of replayed nodes under variants of structure learning",
        source="Figure 9",
        rows=variants({name: ABLATION[name] for name in (CD, LINK, NODE, BOTH, RAISED)}),
        metrics=(m.HOMOPHILY,),
        figure=Figure("points", ("homophily",)),
        where="Section 5.2.2, Figure 9",
        says={
            "both losses give a higher homophily than the link loss alone": above(
                BOTH, LINK, "homophily"
            ),
            "raising homophily directly gives the highest": above_best(
                RAISED, (CD, LINK, NODE, BOTH), "homophily"
            ),
        },
    ),
    Experiment(
        id="training-time",
        title="Training time per task",
        source="Table 5",
        rows=variants(("twp", "continual-gnn", "er-gnn", "rclg", "dslr")),
        metrics=(m.MINUTES, m.FACTOR),
        figure=Figure("points", ("minutes", "factor")),
        where="Section 5.2.3, Table 5",
        says={
            **{
                f"DSLR needs less time than {name}": above(name, "dslr", "minutes")
                for name in ("twp", "continual-gnn", "rclg")
            },
            "ER-GNN needs less time than DSLR": above("dslr", "er-gnn", "minutes"),
        },
        notes=("Minutes are those of the machine at hand; the factor can be compared.",),
    ),
    Experiment(
        id="sensitivity",
        title="Sensitivity to τ, r, λ and K",
        source="Figures 10 and 15",
        rows=lambda facts: [
            Row(f"{title} = {value:g}", f"dslr:{key}={value:g}", title, value)
            for key, (title, values) in RANGES.items()
            for value in values
        ],
        metrics=m.ACCURACY,
        figure=Figure("lines", ("pm", "fm"), split=True),
        quick_rows=("τ = 0.75", "τ = 0.85", "τ = 0.95", "r = 0.1", "r = 0.2", "r = 0.4"),
        where="Section 5.2.4, Figure 10",
        says={
            **{
                f"away from the extremes of {key}, the worst PM is within two points of the best": (
                    steady(key)
                )
                for key, _ in RANGES.values()
            },
        },
    ),
    Experiment(
        id="beta",
        title="PM, FM and Current over β",
        source="Table 6",
        # Without β there is no replay term to balance by class either.
        rows=lambda facts: [
            *(Row(str(beta), f"dslr:beta={beta}", "β", beta) for beta in BETAS),
            Row("not used", "dslr:beta=none,replay_weights=none", "not used", 0.35),
        ],
        metrics=m.ACCURACY,
        figure=Figure("lines", ("pm", "fm", "current"), "β (last point: not used)"),
        quick_rows=("0.05", "0.1", "0.3", "not used"),
        where="Section 5.2.4, Table 6",
        says={
            "FM rises with β": rises([str(beta) for beta in BETAS], "fm"),
            "Current rises with β": rises([str(beta) for beta in BETAS], "current"),
            "without β FM is above that of the β in use": above("not used", "0.1", "fm"),
        },
        notes=("The preset of each dataset decides which β is in use; the rows override it.",),
    ),
    Experiment(
        id="cm-vs-cd",
        title="Coverage maximisation (ER-GNN) and coverage-based diversity (DSLR)",
        source="Table 7",
        rows=variants({"CM": "dslr:structure=none,selector=cm", "CD": "dslr:structure=none"}),
        metrics=m.ACCURACY,
        figure=Figure("points", ("pm", "fm")),
        where="Appendix B.3, Table 7",
        says={
            "CD's PM is above CM's": above("CD", "CM", "pm"),
            "CD's FM is below CM's": above("CM", "CD", "fm"),
        },
        notes=("Both have DSLR's settings, so that the selector alone differs.",),
    ),
    Experiment(
        id="deletion-addition",
        title="Deletion with N and addition with τ",
        source="Table 8",
        rows=variants(
            {
                "proposed": "dslr",
                "deletion with N": "dslr:deletion=lowest",
                "addition with tau": "dslr:addition=threshold",
            }
        ),
        metrics=(m.PM, m.FM, m.ISOLATED, m.DEGREE, m.LOW_DEGREE, m.HIGH_DEGREE),
        figure=Figure("points", ("pm", "fm", "isolated", "degree", "low_degree", "high_degree")),
        where="Appendix C, Table 8",
        says={
            "deletion with N lowers PM": above("proposed", "deletion with N", "pm"),
            "deletion with N raises FM": above("deletion with N", "proposed", "fm"),
            "deletion with N isolates more nodes": above("deletion with N", "proposed", "isolated"),
            "addition with τ lowers PM": above("proposed", "addition with tau", "pm"),
            "addition with τ raises FM": above("addition with tau", "proposed", "fm"),
            "addition with τ raises the degree of replayed nodes": above(
                "addition with tau", "proposed", "degree"
            ),
            "addition with τ lowers the accuracy of low-degree nodes": above(
                "proposed", "addition with tau", "low_degree"
            ),
        },
    ),
    Experiment(
        id="selector-time",
        title="Time of buffer selection per task",
        source="Table 11",
        rows=variants(SELECTORS),
        metrics=(m.SELECTION,),
        figure=Figure("points", ("selection",)),
        where="Appendix H, Table 11",
        says={
            "MF takes less time than CD": above("cd", "mf", "selection"),
            "CD takes less time than CM": above("cm", "cd", "selection"),
        },
        notes=("Seconds are those of the machine at hand.",),
    ),
    Experiment(
        id="link-predictor-time",
        title="Time of structure learning within the whole task",
        source="Table 12",
        rows=variants(["dslr"]),
        metrics=(m.STRUCTURE, m.TASK),
        figure=Figure("points", ("structure", "task")),
        where="Appendix H, Table 12",
        says={
            "structure learning takes less than half of a task": (
                lambda t: -(t("dslr", "structure") / t("dslr", "task")) + 0.5
            ),
        },
        notes=(
            "Structure learning is the link predictor, inference and candidates, over the tasks "
            "that have it; the whole task is the mean over all tasks.",
        ),
    ),
    Experiment(
        id="selector-quality",
        title="Selectors: PM, FM, diversity and distance from the centre",
        source="Tables 13 and 15",
        rows=variants(SELECTORS),
        metrics=(m.PM, m.FM, m.DIVERSITY, m.CENTRE),
        figure=Figure("points", ("pm", "fm", "diversity", "centre")),
        tables=("selector-quality", "selectors"),
        where="Appendix I, Tables 13 and 15",
        says={
            "CD is more diverse than mf": above("cd", "mf", "diversity"),
            "CD is more diverse than cm": above("cd", "cm", "diversity"),
            "CD is nearer to the centre than random": above("random", "cd", "centre"),
            **{
                f"{name}'s PM is below that of {other}": above(other, name, "pm")
                for name in ("random", "kmeans")
                for other in ("mf", "cm", "cd")
            },
            "CD's PM is above that of every other selector": above_best(
                "cd", [name for name in SELECTORS if name != "cd"], "pm"
            ),
        },
        notes=(
            "Table 15's row ContinualGNN is the whole method and belongs to main; importance is "
            "its selector with DSLR's settings.",
            "The paper's numbers come from two tables that contradict each other in four cells.",
        ),
    ),
    Experiment(
        id="radius",
        title="Coverage over its radius r",
        source="Table 14",
        rows=lambda facts: [Row(str(r), f"dslr:r={r}", "r", r) for r in RADII],
        metrics=(m.PM, m.FM, m.DIVERSITY, m.CENTRE),
        figure=Figure("lines", ("pm", "fm", "diversity", "centre"), "r"),
        quick_rows=("0.1", "0.2", "0.4"),
        where="Appendix I, Table 14",
        says={
            "diversity rises with r": rises(None, "diversity"),
            "distance from the centre rises with r": rises(None, "centre"),
        },
    ),
    Experiment(
        id="homophily-structure",
        title="Homophily of replayed nodes per class, without and with structure learning",
        source="Table 16",
        rows=lambda facts: [
            Row("without SL", "dslr", view="before"),
            Row("with SL", "dslr", view="after"),
        ],
        metrics=(*m.CLASS_HOMOPHILY, m.HOMOPHILY),
        figure=Figure("groups", tuple(metric.key for metric in m.CLASS_HOMOPHILY)),
        where="Appendix J.3, Table 16",
        says={
            "structure learning raises the homophily of replayed nodes": above(
                "with SL", "without SL", "homophily"
            ),
        },
        notes=("The same buffer, on the graph as it came and as it was refined in the last task.",),
    ),
    Experiment(
        id="embedding",
        title="t-SNE of the first two classes with their replayed nodes",
        source="Figure 1",
        rows=variants(MF_AND_CD),
        metrics=(m.DIVERSITY, m.CENTRE),
        figure=Figure("embedding", ()),
        where="Section 1, Figure 1",
        says={
            "nodes kept by MF are nearer to the centre of their class than those kept by CD": above(
                "CD", "MF", "centre"
            ),
            "nodes kept by CD are more spread than those kept by MF": above(
                "CD", "MF", "diversity"
            ),
        },
        notes=("Training nodes by the model that selected them.",),
    ),
    Experiment(
        id="datasets",
        title="Statistics of the datasets",
        source="Table 9",
        rows=lambda facts: [Row(facts.dataset, facts.dataset)],
        metrics=m.described(SIZES, digits=0),
        figure=Figure("points", ("nodes", "edges")),
        describe=dataset_sizes,
        notes=(
            "Edges are counted once, without duplicates and loops; the paper counts them as the "
            "files do.",
        ),
    ),
    Experiment(
        id="hyperparameters",
        title="Hyper-parameters of DSLR",
        source="Table 10",
        rows=variants(["dslr"]),
        metrics=m.described(SETTINGS, digits=3),
        figure=Figure("points", ("beta", "lam", "tau", "r")),
        describe=dslr_settings,
        notes=("Ours were chosen on validation nodes (decision 0005).",),
    ),
    Experiment(
        id="frontier",
        title="Accuracy against bytes kept and seconds",
        source="beyond the paper",
        rows=variants({Variant.parse(text).label: text.partition("@")[0] for text in FRONTIER}),
        metrics=(m.PM, m.FM, m.BYTES, m.SECONDS),
        figure=Figure("frontier", ("pm",)),
        quick_rows=("analytic", "analytic-rank-15", "dslr", "replay-mf", "joint", "finetune"),
        notes=(
            "Seconds are those of the machine that each run was made on.",
            "Joint training reads all old labels: it sets the mark and does not compete.",
        ),
        in_paper=False,
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.id: experiment for experiment in _ALL}


def find_experiments(name: str) -> list[Experiment]:
    """Returns one experiment by its id, or all of them."""
    if name == "all":
        return list(EXPERIMENTS.values())
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, {*EXPERIMENTS, "all"})
    return [EXPERIMENTS[name]]
