#!/usr/bin/env python3
"""Render what a terminal showed as an SVG: term2svg.py [TITLE] < log > picture.svg

Understands the SGR colours that agentcli writes (bold, dim, underline, 30-37,
90-97); a line that begins with "$ " is shown as a typed command. The standard
library only.
"""
import html
import re
import sys
import unicodedata

COLOURS = {30: "#3b4252", 31: "#e06c75", 32: "#98c379", 33: "#e5c07b", 34: "#61afef", 35: "#c678dd", 36: "#56b6c2", 37: "#d7dae0"}
FG, BG, DIM, SIZE, ADVANCE, LEADING, MARGIN = "#d7dae0", "#1e2127", "#8b919c", 14, 8.43, 19, 18
SGR = re.compile(r"\x1b\[([0-9;]*)m")
OTHER = re.compile(r"\x1b\[[0-9;?]*[A-Za-ln-z]|\r")


def spans(line):
    """Pieces of one line: (column, text, style attributes)."""
    colour, bold, dim, under, column = None, line.startswith("$ "), False, False, 0
    typed = bold
    for i, part in enumerate(SGR.split(OTHER.sub("", line))):
        if i % 2:  # the codes between two texts
            for code in (int(c or 0) for c in part.split(";")):
                if code == 0:
                    colour, bold, dim, under = None, typed, False, False
                elif code in (1, 2, 4):
                    bold, dim, under = bold or code == 1, dim or code == 2, under or code == 4
                elif code % 60 in COLOURS:
                    colour = COLOURS[code % 60]
        elif part:
            style = f'fill="{colour or (DIM if dim else FG)}"'
            style += ' font-weight="bold"' if bold else ""
            style += ' text-decoration="underline"' if under else ""
            yield column, part, style
            column += sum(0 if unicodedata.combining(c) else 1 for c in part)


def main():
    title = " ".join(sys.argv[1:])
    lines = sys.stdin.read().rstrip("\n").split("\n")
    width = int(2 * MARGIN + ADVANCE * max(len(OTHER.sub("", SGR.sub("", line))) for line in lines)) + 1
    height = int(2 * MARGIN + LEADING * len(lines))
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
          f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}">')
    if title:
        print(f"<title>{html.escape(title)}</title>")
    print(f'<rect width="{width}" height="{height}" rx="8" fill="{BG}"/>')
    for n, line in enumerate(lines):
        for column, text, style in spans(line):
            x, y = MARGIN + column * ADVANCE, MARGIN + LEADING * n + SIZE
            length = f' textLength="{len(text) * ADVANCE:.1f}"' if len(text) > 1 else ""
            print(f'<text x="{x:.1f}" y="{y}" xml:space="preserve" {style}{length}>{html.escape(text)}</text>')
    print("</svg>")


main()
