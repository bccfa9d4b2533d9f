#!/usr/bin/env python3
"""
Draws what containers use of a simulated GPU: picture.py DUTY FOLDER writes policy-*.svg and turns.svg into FOLDER
(docs/figures). The containers run in duty, in virtual time; the figures are the GPU model's own accounting, those of
policies means of 100 ms.
"""
import sys
from pathlib import Path

import matrix

WORKS = "--limits 60,30 --pattern burst=2000/2000,busy --shape 1ms,5ms"
PICTURES = {  # name: title, the two containers, options of duty
    "fixed": ("fixed: never more than the cores", "60 %, fixed, works for 2 s of 4", "30 %, fixed",
              f"{WORKS} --policy fixed,fixed"),
    "elastic": ("elastic: what others leave idle, too", "60 %, fixed, works for 2 s of 4", "30 %, elastic",
                f"{WORKS} --policy fixed,elastic"),
    "none": ("none: no limit, also at the cost of neighbors' cores", "60 %, fixed, works for 2 s of 4", "30 %, none",
             f"{WORKS} --policy fixed,none"),
    "priority": ("high goes before low", "60 %, elastic, high, works for 2 s of 4", "30 %, elastic, low",
                 f"{WORKS} --policy elastic --priority high,low")}
LEFT, TOP, WIDTH, HEIGHT, FROM, SECONDS = 44, 34, 640, 180, 2, 8
COLORS = ("#3f74b5", "#e39a45")


def series(duty, options):
    """Per 100 ms: the parts of the GPU that the containers used."""
    lines = matrix.series(duty, f"--arbiter {options}", FROM, SECONDS)
    lines = [line[1:] for line in lines if line[0] > FROM + 0.001]
    return [[sum(part) / 5 for part in zip(*lines[at:at + 5])] for at in range(0, len(lines) - 4, 5)]


def text(x, y, words, more=""):
    return f'<text x="{x:.0f}" y="{y:.0f}" {more}>{words}</text>'


def begin(title):
    return [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 14} {TOP + HEIGHT + 62}" '
            'font-family="sans-serif" font-size="12" fill="#333">', '<rect width="100%" height="100%" fill="#fff"/>',
            text(LEFT, 20, title, 'font-size="14" font-weight="bold"')]


def draw(title, names, parts):
    x, y = lambda step: LEFT + WIDTH * step / len(parts), lambda part: TOP + HEIGHT * (1 - part)
    svg = begin(title)
    below = [0.0] * len(parts)
    for number, color in enumerate(COLORS):
        above = [low + part[number] for low, part in zip(below, parts)]
        edge = lambda values: [f"{x(at):.1f},{y(value):.1f}" for i, value in enumerate(values) for at in (i, i + 1)]
        svg.append(f'<polygon fill="{color}" points="{" ".join(edge(above) + edge(below)[::-1])}"/>')
        svg.append(f'<rect x="{LEFT + 260 * number}" y="{TOP + HEIGHT + 40}" width="12" height="12" fill="{color}"/>')
        svg.append(text(LEFT + 260 * number + 18, TOP + HEIGHT + 51, names[number]))
        below = above
    for percent in (0, 30, 60, 100):
        svg.append(f'<path d="M{LEFT} {y(percent / 100):.1f}h{WIDTH}" stroke="#333" stroke-opacity=".35" '
                   f'stroke-dasharray="{"none" if percent in (0, 100) else "3 3"}"/>')
        svg.append(text(LEFT - 6, y(percent / 100) + 4, f"{percent} %", 'text-anchor="end"'))
    for second in range(SECONDS + 1):
        svg.append(text(x(second * 10), TOP + HEIGHT + 18, f"{second} s", 'text-anchor="middle"'))
    return "\n".join(svg + ["</svg>", ""])


SHARED = {2: "75,25", 4: "10,20,30,40", 8: "13,13,13,13,12,12,12,12"}  # busy containers: their cores
# A container without a limit that does next to nothing: beside it there are no turns.
LAWS = {"without turns": (",0", "none", "poisson=0.001"), "with turns": ("", "fixed", "busy")}


def shared(duty, cores, count, law):
    """The parts of the GPU that busy containers use."""
    more, policy, pattern = LAWS[law]
    fixed = lambda value: ",".join([value] * count)
    return matrix.Duty(duty, 6).run(
        f"--arbiter --profile hopper,switch=150 --shape 200us --limits {cores}{more} --policy {fixed('fixed')},{policy}"
        f" --pattern {fixed('busy')},{pattern}")[:count]


def draw_turns(duty):
    y, low = lambda part: TOP + HEIGHT * (1 - (part - 0.8) / 0.2), TOP + HEIGHT
    svg = begin("A GPU shared by busy containers: time in use for their work (model)")
    for percent in range(80, 101, 5):
        svg.append(f'<path d="M{LEFT} {y(percent / 100):.1f}h{WIDTH}" stroke="#333" stroke-opacity=".35"/>')
        svg.append(text(LEFT - 6, y(percent / 100) + 4, f"{percent} %", 'text-anchor="end"'))
    for group, (count, cores) in enumerate(SHARED.items()):
        for number, (law, color) in enumerate(zip(LAWS, COLORS[::-1])):
            used, x = sum(shared(duty, cores, count, law)), LEFT + 40 + 210 * group + 80 * number
            svg.append(f'<rect x="{x}" y="{y(used):.1f}" width="70" height="{low - y(used):.1f}" fill="{color}"/>')
            svg.append(text(x + 35, y(used) - 4, f"{100 * used:.1f} %", 'text-anchor="middle"'))
        svg.append(text(LEFT + 115 + 210 * group, low + 18, f"{count} containers", 'text-anchor="middle"'))
    for number, (law, color) in enumerate(zip(LAWS, COLORS[::-1])):
        svg.append(f'<rect x="{LEFT + 260 * number}" y="{low + 40}" width="12" height="12" fill="{color}"/>')
        svg.append(text(LEFT + 260 * number + 18, low + 51, law))
    return "\n".join(svg + ["</svg>", ""])


def main():
    Path(sys.argv[2], "turns.svg").write_text(draw_turns(sys.argv[1]))
    for name, (title, *names, options) in PICTURES.items():
        Path(sys.argv[2], f"policy-{name}.svg").write_text(draw(title, names, series(sys.argv[1], options)))


if __name__ == "__main__":
    main()
