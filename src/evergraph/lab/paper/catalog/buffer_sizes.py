"""Rows over the size of the buffer, which three experiments share."""

from evergraph.lab.paper.experiment import Facts, Row

PERCENT = (1, 2, 3, 4, 5)


def size_rows(facts: Facts, series: str, method: str) -> list[Row]:
    """Gives a method buffers of 1 to 5 % of all training nodes, one node per class at least."""
    joint = "," if ":" in method else ":"
    sizes = [max(facts.num_classes, round(facts.num_train * p / 100)) for p in PERCENT]
    return [
        Row(f"{series} {percent} %", f"{method}{joint}buffer_size={size}", series, percent)
        for percent, size in zip(PERCENT, sizes, strict=True)
    ]


def at(series: str, *percents: int) -> list[str]:
    """Names the rows of a series at some sizes, all by default."""
    return [f"{series} {percent} %" for percent in percents or PERCENT]
