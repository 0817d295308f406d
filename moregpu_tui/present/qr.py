"""QR codes in half blocks: two squares of the code in each cell, dark on light whatever the theme."""

from __future__ import annotations

from moregpu_tui.present.cells import Line

BORDER = 2


def qr_lines(text: str, ascii_only: bool) -> list[Line]:
    """The code of a text. In upper case and digits it is smaller: lines of invites are."""
    import segno  # 60 ms, and seldom asked for

    code = segno.make(text, error="l", micro=False, boost_error=False)
    matrix = [[bool(dark) for dark in row] for row in code.matrix_iter(scale=1, border=BORDER)]
    if ascii_only:
        return [(("".join("##" if not dark else "  " for dark in row), "strong"),) for row in matrix]
    if len(matrix) % 2:
        matrix.append([False] * len(matrix[0]))
    signs = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
    return [
        (("".join(signs[upper, lower] for upper, lower in zip(matrix[at], matrix[at + 1], strict=True)), "strong"),)
        for at in range(0, len(matrix), 2)
    ]
