#!/usr/bin/env python3
"""Reads the histogram logs that `podstuck ... --export DIR` writes, and draws them.

    histograms.py DIR/histograms.hlog                      a table: one row a series
    histograms.py DIR/histograms.hlog --plot               a bar chart of each series, as text
    histograms.py DIR/histograms.hlog --svg latencies.svg  percentiles of all series, as a picture
    histograms.py DIR/intervals.hlog --heat                calls by time and latency, as text
    histograms.py FILE --match kubelet --match EBUSY       only series whose tag has both words
    histograms.py FILE --csv                               the table for another program

It needs nothing but Python 3.8. Where `hdrh` (`pip install hdrhistogram`) is installed, `--with-hdrh` has that decode
the file instead; the numbers are the same. Any other HdrHistogram interval log (V2, compressed or not) is read, too.
Lines of a file that have the same tag are added up. Values are nanoseconds.
"""

import argparse
import base64
import csv
import math
import struct
import sys
import zlib
from xml.sax.saxutils import escape

V2, V2_COMPRESSED = 0x1C849303, 0x1C849304
COOKIE_MASK = 0xFFFFFF0F
LARGEST = 64 << 20
QUANTILES = (0.5, 0.9, 0.99, 0.999)
BLOCKS = " ▏▎▍▌▋▊▉█"
SHADES = " ░▒▓█"


class Series:
    """Calls by value: the highest value that is equivalent to what was recorded."""

    def __init__(self):
        self.counts, self.lowest = {}, None

    def add(self, lowest, highest, calls):
        self.counts[highest] = self.counts.get(highest, 0) + calls
        self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)

    @property
    def calls(self):
        return sum(self.counts.values())

    @property
    def highest(self):
        return max(self.counts, default=0)

    def quantile(self, share):
        left = max(1, math.ceil(share * self.calls))
        for value in sorted(self.counts):
            left -= self.counts[value]
            if left <= 0:
                return value
        return 0


def leb128(data):
    """Signed numbers of a varying length: zigzag, seven bits a byte, eight in the ninth."""
    at = 0
    while at < len(data):
        number = shift = 0
        for place in range(9):
            byte = data[at]
            at += 1
            if place == 8:
                number |= byte << shift
                break
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        yield (number >> 1) ^ -(number & 1)


def values_of(data):
    """(lowest, highest, calls) of each value of an encoded histogram."""
    cookie, length = struct.unpack_from(">ii", data)
    if cookie & COOKIE_MASK == V2_COMPRESSED & COOKIE_MASK:
        inflate = zlib.decompressobj()
        data = inflate.decompress(data[8 : 8 + length], LARGEST)
        cookie, length = struct.unpack_from(">ii", data)
    if cookie & COOKIE_MASK != V2 & COOKIE_MASK:
        raise ValueError("not a histogram of the second format")
    _, digits, least = struct.unpack_from(">iiq", data, 8)
    unit = int(math.log2(max(least, 1)))
    sub_buckets = 1 << math.ceil(math.log2(2 * 10**digits))
    half, at = sub_buckets // 2, 0
    for number in leb128(data[40 : 40 + length]):
        if number < 0:
            at -= number
            continue
        if number > 0:
            bucket, sub = at // half - 1, at % half + half
            if bucket < 0:
                bucket, sub = 0, sub - half
            lowest = sub << (bucket + unit)
            yield lowest, lowest + (1 << (bucket + unit)) - 1, number
        at += 1


def by_hdrh(text):
    from hdrh.histogram import HdrHistogram

    histogram = HdrHistogram.decode(text)
    for item in histogram.get_recorded_iterator():
        value = item.value_iterated_to
        lowest = histogram.get_lowest_equivalent_value(value)
        yield lowest, histogram.get_highest_equivalent_value(value), item.count_added_in_this_iter_step


def lines_of(path, with_hdrh):
    """(tag, start in seconds, values) of each line."""
    with open(path, encoding="utf-8", errors="replace") as log:
        for number, line in enumerate(log, 1):
            line = line.strip()
            if not line or line[0] in '#"':
                continue
            tag = ""
            if line.startswith("Tag="):
                tag, _, line = line[4:].partition(",")
            parts = line.split(",")
            try:
                values = by_hdrh(parts[3]) if with_hdrh else values_of(base64.b64decode(parts[3]))
                yield tag, float(parts[0]), list(values)
            except (IndexError, ValueError, struct.error, zlib.error) as why:
                raise SystemExit(f"{path}: line {number} is no line of a histogram log: {why}")


def shown(text):
    """What cannot act on a terminal."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def duration(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.3g} {unit}"
    return f"{ns} ns"


def row_of(tag, series):
    return [tag, series.calls, series.lowest, *map(series.quantile, QUANTILES), series.highest]


HEAD = ["tag", "count", "min_ns", "p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns"]


def print_table(all_series):
    names = [name.replace("_ns", "").replace("99_9", "99.9") for name in HEAD[1:]]
    print("".join(f"{name:>10}" for name in names), " series")
    for tag, series in all_series:
        _, calls, *times = row_of(tag, series)
        print(f"{calls:>10}" + "".join(f"{duration(ns):>10}" for ns in times), "", shown(tag))


def print_plot(all_series, width=48):
    """Of each series a bar for each half of a power of two; bars are logarithmic, so that one call shows."""
    for tag, series in all_series:
        print(f"{shown(tag)}: {series.calls} calls")
        bands = {}
        for value, calls in series.counts.items():
            band = int(2 * math.log2(max(value, 1)))
            bands[band] = bands.get(band, 0) + calls
        most = math.log10(max(bands.values()) + 1)
        for band in range(min(bands), max(bands) + 1):
            calls = bands.get(band, 0)
            eighths = round(8 * width * math.log10(calls + 1) / most)
            bar = BLOCKS[8] * (eighths // 8) + BLOCKS[eighths % 8].strip()
            print(f"  {duration(int(2 ** (band / 2))):>8} {bar} {calls or ''}".rstrip())
        print()


def print_heat(lines, width=64):
    """Time across, latency up, darker where there were more calls."""
    cells, end = {}, 0.0
    for _, start, values in lines:
        end = max(end, start)
        for _, highest, calls in values:
            at = (int(math.log2(max(highest, 1))), start)
            cells[at] = cells.get(at, 0) + calls
    if not cells:
        return
    step = max(1.0, (end + 1) / width)
    grid = {}
    for (band, start), calls in cells.items():
        at = (band, int(start / step))
        grid[at] = grid.get(at, 0) + calls
    most = math.log10(max(grid.values()) + 1)
    bands, columns = [band for band, _ in grid], range(int(end / step) + 1)
    for band in range(max(bands), min(bands) - 1, -1):
        row = (math.log10(grid.get((band, column), 0) + 1) / most for column in columns)
        print(f"{duration(2**band):>8} " + "".join(SHADES[math.ceil(4 * share)] for share in row))
    print(f"{'':>8} 0 s to {end + 1:.0f} s, {step:.3g} s a column")


def svg_of(all_series, width=900, height=420):
    """Latency up, logarithmic, and the share of calls that took longer across, as HdrHistogram's own plotter has it."""
    left, right, top, bottom = 70, 20, 20, 40
    tallest = max((series.highest for _, series in all_series), default=1)
    high = math.ceil(math.log10(max(tallest, 10)))
    nines = max((math.log10(max(series.calls, 10)) for _, series in all_series), default=1)
    x = lambda share: left + (width - left - right) * min(-math.log10(max(1 - share, 1e-12)) / nines, 1)
    y = lambda ns: height - bottom - (height - top - bottom) * math.log10(max(ns, 1)) / high
    room = height + 18 * len(all_series)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {room}" font-family="sans-serif" '
        'font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for power in range(high + 1):
        at = y(10**power)
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        out.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{duration(10**power)}</text>')
    for nine in range(int(nines) + 1):
        share = 1 - 10**-nine
        out.append(f'<text x="{x(share):.1f}" y="{height - 18}" text-anchor="middle">{100 * share:.6g} %</text>')
    for number, (tag, series) in enumerate(all_series):
        colour = f"hsl({number * 137.5 % 360:.0f},65%,40%)"
        seen, points = 0, []
        for value in sorted(series.counts):
            points.append(f"{x(seen / series.calls):.1f},{y(value):.1f}")
            seen += series.counts[value]
            points.append(f"{x(min(seen / series.calls, 1 - 1 / (series.calls + 1))):.1f},{y(value):.1f}")
        out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        name = escape(f"{shown(tag)}: {series.calls} calls")
        out.append(f'<text x="{left}" y="{height + 12 + 18 * number}" fill="{colour}">{name}</text>')
    return "\n".join(out + ["</svg>\n"])


def main():
    what, _, usage = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=what, epilog=usage, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("log", help="histograms.hlog or intervals.hlog")
    parser.add_argument("--match", action="append", default=[], metavar="WORD", help="only series with this in the tag")
    parser.add_argument("--top", type=int, default=0, metavar="N", help="only the N series with the most calls")
    parser.add_argument("--with-hdrh", action="store_true", help="decode by Python's hdrh")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="the table for another program")
    form.add_argument("--plot", action="store_true", help="a bar chart of each series")
    form.add_argument("--heat", action="store_true", help="calls by time and latency")
    form.add_argument("--svg", metavar="FILE", help="percentiles of all series as a picture")
    options = parser.parse_args()

    lines = lines_of(options.log, options.with_hdrh)
    lines = [line for line in lines if all(word in line[0] for word in options.match)]
    series = {}
    for tag, _, values in lines:
        for value in values:
            series.setdefault(tag, Series()).add(*value)
    most = sorted(series.items(), key=lambda item: -item[1].calls)
    if options.top > 0:
        kept = dict(most[: options.top])
        lines = [line for line in lines if line[0] in kept]
        most = list(kept.items())
    if options.csv:
        table = csv.writer(sys.stdout, lineterminator="\n")
        table.writerow(HEAD)
        table.writerows(row_of(shown(tag), series) for tag, series in most)
    elif options.plot:
        print_plot(most)
    elif options.heat:
        print_heat(lines)
    elif options.svg:
        with open(options.svg, "w", encoding="utf-8") as out:
            out.write(svg_of(most))
    else:
        print_table(most)


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        sys.exit(1)
