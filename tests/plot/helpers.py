"""Functions that read figures."""

from itertools import combinations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Tick
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.spines import Spine
from matplotlib.text import Text

from pdno.plot.style import GROUND

X = np.linspace(-1, 1, 16)
EPOCHS = {"64²": ([1, 10], [0.1, 0.01]), "128²": ([1, 10], [0.2, 0.02])}
RECORDS = [{"step": k, "loss": 1 / k} | ({"validation": 2 / k} if k % 2 else {}) for k in range(1, 9)]


def field(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def rendered(figure: Figure) -> np.ndarray:
    """The pixels, (height, width, 4)."""
    figure.set_dpi(60)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())


def lines(axes: Axes) -> dict[str, np.ndarray]:
    """Label → y of each line; of lines that share a label the last."""
    return {str(line.get_label()): np.asarray(line.get_ydata()) for line in axes.lines}


def meshes(figure: Figure) -> dict[str, QuadMesh]:
    """Title → map."""
    found = {axes.get_title(): [c for c in axes.collections if isinstance(c, QuadMesh)] for axes in figure.axes}
    return {title: mesh for title, (mesh,) in found.items()}


def words(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text) if text.get_text() and text.get_visible()}


def edges(axes: Axes) -> np.ndarray:
    """Lower and upper edge of the only band, at the nodes."""
    (shape,) = axes.collections
    points = shape.get_paths()[0].vertices
    at = {x: points[points[:, 0] == x, 1] for x in np.unique(points[:, 0])}
    return np.array([[at[x].min() for x in at], [at[x].max() for x in at]])


def limits_of(values: np.ndarray) -> tuple[float, float]:
    return float(values.min()), float(values.max())


def check(figure: Figure, theme: str) -> None:
    """Contrast ≥ 4.5:1 (WCAG) of text and ticks, font sizes, and no overlap of axes, legends, titles and edges."""
    pixels, ground = rendered(figure), GROUND[theme][0]
    np.testing.assert_allclose(pixels[0, 0, :3] / 255, to_rgb(ground), atol=1 / 255)
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert min(contrast(text.get_color(), ground) for text in texts) >= 4.5
    marks = {s.get_edgecolor() for s in figure.findobj(Spine)} | {
        t.tick1line.get_markeredgecolor() for t in figure.findobj(Tick)
    }
    assert min(contrast(mark, ground) for mark in marks) >= 4.5
    assert 7.9 <= min(text.get_fontsize() for text in texts) <= max(text.get_fontsize() for text in texts) <= 10
    titles = [figure._suptitle] if figure._suptitle is not None else []
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [each.get_window_extent() for each in [*figure.legends, *titles]]
    for box in boxes:
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1
        assert box.y1 <= figure.bbox.y1 + 1
    for one, other in combinations(boxes, 2):
        assert min(one.x1, other.x1) - max(one.x0, other.x0) < 2 or min(one.y1, other.y1) - max(one.y0, other.y0) < 2


def linear(colour: str) -> np.ndarray:
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Ratio of relative luminances by WCAG 2."""
    dark, light = sorted(float(np.array([0.2126, 0.7152, 0.0722]) @ linear(c)) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)
