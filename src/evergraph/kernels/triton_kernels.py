"""The Triton kernels: attention, dropout, the link loss and distances.

The file is long because it holds every kernel and nothing else: Triton reads annotations of
parameters as code, so that kernels stay without types and this module alone is excused from
them. Sums run in a fixed order, without atomics, so that results are the same bits every time.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def attend_forward(
    bounds,
    owner,
    place,
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
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Sums one chunk of a row's edges for one head; scores above zero apart from the rest."""
    chunk = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    begin = tl.load(bounds + chunk)
    end = tl.load(bounds + chunk + 1)
    row = tl.load(owner + chunk)
    to = tl.load(place + chunk)
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
        plus += value * high[:, None]
        minus += value * (weight - high)[:, None]
        total += weight
        above += high
    plus_sum = tl.sum(plus, axis=0)
    total_sum = tl.sum(total, axis=0)
    scale = tl.where(total_sum > 0, 1.0 / total_sum, 0.0)
    shift = tl.load(bias + head * channels + channel, mask=inside, other=0.0)
    at_place = to * (heads * channels) + head * channels + channel
    both = (plus_sum + tl.sum(minus, axis=0)) * scale
    tl.store(out + at_place, both + shift, mask=inside)
    tl.store(positive + at_place, plus_sum * scale, mask=inside)
    tl.store(lse + to * heads + head, tl.where(total_sum > 0, top + tl.log(total_sum), 0.0))
    tl.store(share + to * heads + head, tl.sum(above, axis=0) * scale)


@triton.jit
def attend_backward_targets(
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
    g = tl.load(grad + position, mask=wanted, other=0.0)
    shift = tl.load(bias + head * channels + channel, mask=inside, other=0.0)
    value = tl.load(shown + position, mask=wanted, other=0.0) * undo
    whole = tl.sum(g * (value - shift[None, :]), axis=1)
    plus = tl.sum(g * tl.load(positive + position, mask=wanted, other=0.0), axis=1)
    part = tl.load(share + row * heads + head, mask=real, other=0.0)
    tl.store(delta + row * heads + head, whole, mask=real)
    tl.store(grad_target + row * heads + head, (1 - slope) * (plus - whole * part), mask=real)


@triton.jit
def attend_backward_sources(
    bounds,
    owner,
    place,
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
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Collects the gradients of one chunk of a source's edges, one head."""
    chunk = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    begin = tl.load(bounds + chunk)
    end = tl.load(bounds + chunk + 1)
    row = tl.load(owner + chunk)
    to = tl.load(place + chunk)
    channel = tl.arange(0, block_channels)
    inside = channel < channels
    offset = tl.arange(0, block_edges)
    at_row = row * (heads * channels) + head * channels + channel
    mine = tl.load(wx + at_row, mask=inside, other=0.0)
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
        product = tl.sum(value * mine[None, :], axis=1)
        change = product - tl.load(delta + stats, mask=real, other=0.0)
        rows += value * weight[:, None]
        scores += weight * change * turn
    at_place = to * (heads * channels) + head * channels + channel
    tl.store(grad_wx + at_place, tl.sum(rows, axis=0), mask=inside)
    tl.store(grad_source + to * heads + head, tl.sum(scores, axis=0))


@triton.jit
def join(
    hubs,
    parts,
    weight,
    rows,
    num_rows,
    weighed: tl.constexpr,
    heads: tl.constexpr,
    channels: tl.constexpr,
    block_channels: tl.constexpr,
):
    """Adds up what stands behind the rows at one hub for one head, by weight if there is any."""
    hub = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    channel = tl.arange(0, block_channels)
    inside = channel < channels
    total = tl.zeros([block_channels], dtype=tl.float32)
    for part in range(tl.load(parts + hub), tl.load(parts + hub + 1)):
        position = ((num_rows + part) * heads + head) * channels + channel
        value = tl.load(rows + position, mask=inside, other=0.0)
        if weighed:
            value *= tl.load(weight + part * heads + head)
        total += value
    at_row = (tl.load(hubs + hub) * heads + head) * channels + channel
    tl.store(rows + at_row, total, mask=inside)


@triton.jit
def drop(seed, rows, out, size, dropped, scale, rectify: tl.constexpr, share: tl.constexpr):
    """Zeroes the entries whose random byte is below ``dropped`` and rescales the rest."""
    at = tl.program_id(0).to(tl.int64) * share + tl.arange(0, share)
    inside = at < size
    # SplitMix64 of the group of eight entries, then the byte of this one.
    word = tl.load(seed).to(tl.uint64) + (at // 8).to(tl.uint64) * 0x9E3779B97F4A7C15
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB
    word = word ^ (word >> 31)
    byte = (word >> ((at % 8) * 8).to(tl.uint64)) & 255
    value = tl.load(rows + at, mask=inside, other=0.0)
    kept = byte.to(tl.int32) >= dropped
    if rectify:
        kept = kept & (value > 0)
    tl.store(out + at, tl.where(kept, value * scale, 0.0), mask=inside)


@triton.jit
def pair_terms(
    bounds,
    owner,
    place,
    columns,
    unit,
    margin,
    loss,
    grad,
    positive: tl.constexpr,
    width: tl.constexpr,
    block_width: tl.constexpr,
    block_edges: tl.constexpr,
):
    """Sums the terms of one chunk of a row's pairs."""
    chunk = tl.program_id(0).to(tl.int64)
    begin = tl.load(bounds + chunk)
    end = tl.load(bounds + chunk + 1)
    row = tl.load(owner + chunk)
    to = tl.load(place + chunk)
    channel = tl.arange(0, block_width)
    inside = channel < width
    offset = tl.arange(0, block_edges)
    mine = tl.load(unit + row * width + channel, mask=inside, other=0.0)
    rows = tl.zeros([block_edges, block_width], dtype=tl.float32)
    total = tl.zeros([block_edges], dtype=tl.float32)
    for at in range(begin, end, block_edges):
        pair = at + offset
        column = tl.load(columns + pair, mask=pair < end, other=-1).to(tl.int64)
        real = column >= 0
        position = column[:, None] * width + channel[None, :]
        value = tl.load(unit + position, mask=real[:, None] & inside[None, :], other=0.0)
        score = (tl.sum(value * mine[None, :], axis=1) + 1) * 0.5
        kept = tl.minimum(tl.maximum(score, margin), 1 - margin)
        if positive:
            term = -tl.log(kept)
            slope = -1.0 / kept
        else:
            term = -tl.log(1 - kept)
            slope = 1.0 / (1 - kept)
        total += tl.where(real, term, 0.0)
        # Both ends see the pair, so that each sees half of what it costs: slopes are doubled.
        rows += tl.where(real & (score == kept), slope, 0.0)[:, None] * value
    tl.store(grad + to * width + channel, tl.sum(rows, axis=0), mask=inside)
    tl.store(loss + to, tl.sum(total, axis=0))


# Every kernel of distances takes them from ``tile``, which adds squared differences column by
# column: a pair has the same bits everywhere, whatever the tile and whichever row comes first.


@triton.jit
def places(block, each: tl.constexpr, lanes: tl.constexpr):
    """Returns the rows of one block, ``[each, lanes]``."""
    begin = block * each * lanes
    return begin + tl.arange(0, each)[:, None] * lanes + tl.arange(0, lanes)[None, :]


@triton.jit
def tile(
    a,
    b,
    row,
    column,
    padded_a,
    padded_b,
    depth,
    each_a: tl.constexpr,
    each_b: tl.constexpr,
    lanes: tl.constexpr,
    unroll: tl.constexpr,
):
    """Computes the distances of one tile, ``[each_a, each_b, lanes, lanes]``."""
    total = tl.zeros([each_a, each_b, lanes, lanes], dtype=tl.float32)
    for _ in range(0, depth, unroll):
        for _ in tl.static_range(unroll):
            mine = tl.load(a + row)[:, None, :, None]
            difference = mine - tl.load(b + column)[None, :, None, :]
            # Spelled out: left to the compiler, kernels could round differently.
            total = tl.fma(difference, difference, total)
            a += padded_a
            b += padded_b
    return tl.sqrt_rn(total)


@triton.jit
def write_distances(
    a,
    b,
    out,
    num_a,
    num_b,
    padded_a,
    padded_b,
    depth,
    each_a: tl.constexpr,
    each_b: tl.constexpr,
    lanes: tl.constexpr,
    unroll: tl.constexpr,
):
    """Writes one tile of distances."""
    across = tl.cdiv(num_b, each_b * lanes)
    row = places(tl.program_id(0) // across, each_a, lanes)
    column = places(tl.program_id(0) % across, each_b, lanes)
    distance = tile(a, b, row, column, padded_a, padded_b, depth, each_a, each_b, lanes, unroll)
    row = row[:, None, :, None]
    column = column[None, :, None, :]
    inside = (row < num_a) & (column < num_b)
    tl.store(out + row.to(tl.int64) * num_b + column, distance, mask=inside)


@triton.jit
def reduce_distances(
    a,
    b,
    radius,
    out,
    num_a,
    num_b,
    padded_a,
    padded_b,
    depth,
    span,
    counts: tl.constexpr,
    each: tl.constexpr,
    lanes: tl.constexpr,
    unroll: tl.constexpr,
):
    """Sums the distances of a block of ``b`` to one span of ``a``, or counts those in a radius."""
    column = places(tl.program_id(0), each, lanes)
    total = tl.zeros([each, lanes], dtype=tl.int32 if counts else tl.float64)
    begin = tl.program_id(1) * span
    for block in range(begin, tl.minimum(begin + span, tl.cdiv(num_a, each * lanes))):
        row = places(block, each, lanes)
        distance = tile(a, b, row, column, padded_a, padded_b, depth, each, each, lanes, unroll)
        real = (row < num_a)[:, None, :, None]
        if counts:
            value = ((distance < tl.load(radius)) & real).to(tl.int32)
        else:
            value = tl.where(real, distance, 0.0).to(tl.float64)
        total += tl.sum(tl.sum(value, axis=0), axis=1)
    place = tl.program_id(1).to(tl.int64) * num_b + column
    tl.store(out + place, total, mask=column < num_b)
