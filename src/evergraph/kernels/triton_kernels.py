"""The Triton kernels of attention, one program per chunk of edges and head.

Triton reads annotations of kernels as code, so that theirs stay without types.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def forward(
    first,
    last,
    owner,
    slot,
    columns,
    wx,
    from_source,
    at_target,
    bias,
    slope,
    out,
    positive,
    lse,
    share,
    part_minus,
    part_plus,
    part_top,
    part_total,
    part_above,
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Sums one chunk of a row's edges for one head; scores above zero apart from the rest."""
    chunk = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    begin = tl.load(first + chunk)
    end = tl.load(last + chunk)
    row = tl.load(owner + chunk)
    place = tl.load(slot + chunk)
    target = tl.load(at_target + row * heads + head)
    channel = tl.arange(0, block_channels)
    inside = channel < channels
    offset = tl.arange(0, block_edges)
    highest = tl.full([block_edges], float("-inf"), dtype=tl.float32)
    for at in range(begin, end, block_edges):
        edge = at + offset
        real = edge < end
        column = tl.load(columns + edge, mask=real, other=0).to(tl.int64)
        source = tl.load(from_source + column * heads + head, mask=real, other=float("-inf"))
        highest = tl.maximum(highest, source)
    top = tl.max(highest, axis=0) + target  # the leaky ReLU keeps the order of scores
    top = tl.where(top > 0, top, slope * top)
    minus = tl.zeros([block_edges, block_channels], dtype=tl.float32)
    plus = tl.zeros([block_edges, block_channels], dtype=tl.float32)
    total = tl.zeros([block_edges], dtype=tl.float32)
    above = tl.zeros([block_edges], dtype=tl.float32)
    for at in range(begin, end, block_edges):
        edge = at + offset
        real = edge < end
        column = tl.load(columns + edge, mask=real, other=0).to(tl.int64)
        score = target + tl.load(from_source + column * heads + head, mask=real, other=0.0)
        weight = tl.exp(tl.where(score > 0, score, slope * score) - top)
        weight = tl.where(real, weight, 0.0)
        high = tl.where(score > 0, weight, 0.0)
        position = column[:, None] * (heads * channels) + head * channels + channel[None, :]
        value = tl.load(wx + position, mask=real[:, None] & inside[None, :], other=0.0)
        value = value.to(tl.float32)
        plus += value * high[:, None]
        minus += value * (weight - high)[:, None]
        total += weight
        above += high
    plus_sum = tl.sum(plus, axis=0)
    minus_sum = tl.sum(minus, axis=0)
    total_sum = tl.sum(total, axis=0)
    above_sum = tl.sum(above, axis=0)
    if place < 0:
        scale = tl.where(total_sum > 0, 1.0 / total_sum, 0.0)
        at_row = row * (heads * channels) + head * channels + channel
        shift = tl.load(bias + head * channels + channel, mask=inside, other=0.0)
        tl.store(out + at_row, (plus_sum + minus_sum) * scale + shift, mask=inside)
        tl.store(positive + at_row, plus_sum * scale, mask=inside)
        tl.store(lse + row * heads + head, tl.where(total_sum > 0, top + tl.log(total_sum), 0.0))
        tl.store(share + row * heads + head, above_sum * scale)
    else:
        at_part = place * (heads * channels) + head * channels + channel
        tl.store(part_minus + at_part, minus_sum, mask=inside)
        tl.store(part_plus + at_part, plus_sum, mask=inside)
        tl.store(part_top + place * heads + head, top)
        tl.store(part_total + place * heads + head, total_sum)
        tl.store(part_above + place * heads + head, above_sum)


@triton.jit
def join_forward(
    hubs,
    parts,
    bias,
    out,
    positive,
    lse,
    share,
    part_minus,
    part_plus,
    part_top,
    part_total,
    part_above,
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Joins the parts of one hub for one head."""
    hub = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    row = tl.load(hubs + hub)
    begin = tl.load(parts + hub)
    end = tl.load(parts + hub + 1)
    channel = tl.arange(0, block_channels)
    inside = channel < channels
    offset = tl.arange(0, block_edges)
    highest = tl.full([block_edges], float("-inf"), dtype=tl.float32)
    for at in range(begin, end, block_edges):
        part = at + offset
        real = part < end
        value = tl.load(part_top + part * heads + head, mask=real, other=float("-inf"))
        highest = tl.maximum(highest, value)
    top = tl.max(highest, axis=0)
    minus = tl.zeros([block_edges, block_channels], dtype=tl.float32)
    plus = tl.zeros([block_edges, block_channels], dtype=tl.float32)
    total = tl.zeros([block_edges], dtype=tl.float32)
    above = tl.zeros([block_edges], dtype=tl.float32)
    for at in range(begin, end, block_edges):
        part = at + offset
        real = part < end
        own = tl.load(part_top + part * heads + head, mask=real, other=float("-inf"))
        scale = tl.where(real, tl.exp(own - top), 0.0)
        total += scale * tl.load(part_total + part * heads + head, mask=real, other=0.0)
        above += scale * tl.load(part_above + part * heads + head, mask=real, other=0.0)
        position = part[:, None] * (heads * channels) + head * channels + channel[None, :]
        wanted = real[:, None] & inside[None, :]
        minus += scale[:, None] * tl.load(part_minus + position, mask=wanted, other=0.0)
        plus += scale[:, None] * tl.load(part_plus + position, mask=wanted, other=0.0)
    total_sum = tl.sum(total, axis=0)
    plus_sum = tl.sum(plus, axis=0)
    at_row = row * (heads * channels) + head * channels + channel
    shift = tl.load(bias + head * channels + channel, mask=inside, other=0.0)
    tl.store(out + at_row, (plus_sum + tl.sum(minus, axis=0)) / total_sum + shift, mask=inside)
    tl.store(positive + at_row, plus_sum / total_sum, mask=inside)
    tl.store(lse + row * heads + head, top + tl.log(total_sum))
    tl.store(share + row * heads + head, tl.sum(above, axis=0) / total_sum)


@triton.jit
def backward_targets(
    grad,
    shown,
    undo,
    positive,
    share,
    bias,
    slope,
    delta,
    grad_target,
    num_rows,
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_rows: tl.constexpr,
):
    """Multiplies gradient and output of a block of rows, one head."""
    row = tl.program_id(0).to(tl.int64) * block_rows + tl.arange(0, block_rows)
    head = tl.program_id(1)
    real = row < num_rows
    channel = tl.arange(0, block_channels)
    inside = channel < channels
    wanted = real[:, None] & inside[None, :]
    position = row[:, None] * (heads * channels) + head * channels + channel[None, :]
    g = tl.load(grad + position, mask=wanted, other=0.0).to(tl.float32)
    shift = tl.load(bias + head * channels + channel, mask=inside, other=0.0)
    value = tl.load(shown + position, mask=wanted, other=0.0).to(tl.float32) * undo
    whole = tl.sum(g * (value - shift[None, :]), axis=1)
    plus = tl.sum(g * tl.load(positive + position, mask=wanted, other=0.0).to(tl.float32), axis=1)
    part = tl.load(share + row * heads + head, mask=real, other=0.0)
    tl.store(delta + row * heads + head, whole, mask=real)
    tl.store(grad_target + row * heads + head, (1 - slope) * (plus - whole * part), mask=real)


@triton.jit
def backward_sources(
    first,
    last,
    owner,
    slot,
    columns,
    grad,
    wx,
    from_source,
    at_target,
    lse,
    delta,
    slope,
    grad_wx,
    grad_source,
    part_wx,
    part_source,
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Collects the gradients of one chunk of a source's edges, one head."""
    chunk = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    begin = tl.load(first + chunk)
    end = tl.load(last + chunk)
    row = tl.load(owner + chunk)
    place = tl.load(slot + chunk)
    channel = tl.arange(0, block_channels)
    inside = channel < channels
    offset = tl.arange(0, block_edges)
    at_row = row * (heads * channels) + head * channels + channel
    mine = tl.load(wx + at_row, mask=inside, other=0.0).to(tl.float32)
    source = tl.load(from_source + row * heads + head)
    rows = tl.zeros([block_edges, block_channels], dtype=tl.float32)
    scores = tl.zeros([block_edges], dtype=tl.float32)
    for at in range(begin, end, block_edges):
        edge = at + offset
        real = edge < end
        column = tl.load(columns + edge, mask=real, other=0).to(tl.int64)
        stats = column * heads + head
        score = source + tl.load(at_target + stats, mask=real, other=0.0)
        turn = tl.where(score > 0, 1.0, slope)
        weight = tl.exp(turn * score - tl.load(lse + stats, mask=real, other=0.0))
        weight = tl.where(real, weight, 0.0)
        position = column[:, None] * (heads * channels) + head * channels + channel[None, :]
        value = tl.load(grad + position, mask=real[:, None] & inside[None, :], other=0.0)
        value = value.to(tl.float32)
        product = tl.sum(value * mine[None, :], axis=1)
        change = product - tl.load(delta + stats, mask=real, other=0.0)
        rows += value * weight[:, None]
        scores += weight * change * turn
    row_sum = tl.sum(rows, axis=0)
    score_sum = tl.sum(scores, axis=0)
    if place < 0:
        tl.store(grad_wx + at_row, row_sum, mask=inside)
        tl.store(grad_source + row * heads + head, score_sum)
    else:
        at_part = place * (heads * channels) + head * channels + channel
        tl.store(part_wx + at_part, row_sum, mask=inside)
        tl.store(part_source + place * heads + head, score_sum)


@triton.jit
def join_backward(
    hubs,
    parts,
    grad_wx,
    grad_source,
    part_wx,
    part_source,
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Adds up the parts of one hub for one head."""
    hub = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    row = tl.load(hubs + hub)
    begin = tl.load(parts + hub)
    end = tl.load(parts + hub + 1)
    channel = tl.arange(0, block_channels)
    inside = channel < channels
    offset = tl.arange(0, block_edges)
    rows = tl.zeros([block_edges, block_channels], dtype=tl.float32)
    scores = tl.zeros([block_edges], dtype=tl.float32)
    for at in range(begin, end, block_edges):
        part = at + offset
        real = part < end
        position = part[:, None] * (heads * channels) + head * channels + channel[None, :]
        rows += tl.load(part_wx + position, mask=real[:, None] & inside[None, :], other=0.0)
        scores += tl.load(part_source + part * heads + head, mask=real, other=0.0)
    at_row = row * (heads * channels) + head * channels + channel
    tl.store(grad_wx + at_row, tl.sum(rows, axis=0), mask=inside)
    tl.store(grad_source + row * heads + head, tl.sum(scores, axis=0))
