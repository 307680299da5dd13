"""The contrast of every text on a page with what lies behind it, as WCAG 2.1 defines it."""

from __future__ import annotations

from typing import Any

__all__ = ["worst_contrast"]

# Texts that are shown, with their colour and the first ground behind them that is not see-through.
_PAIRS = """() => {
  const seen = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode, e = node.parentElement;
    const isText = node.textContent.trim() && !e.closest('script, style, noscript, option');
    if (!isText || !e.checkVisibility()) continue;
    const s = getComputedStyle(e);
    const ink = e.closest('svg') ? s.fill : s.color;
    let ground = 'rgb(255, 255, 255)';
    for (let at = e; at; at = at.parentElement) {
      const found = getComputedStyle(at).backgroundColor;
      if (!/, 0\\)|transparent/.test(found)) { ground = found; break; }
    }
    const where = `${e.tagName}.${e.getAttribute('class')}: ${node.textContent.trim().slice(0, 40)}`;
    seen.set(ink + '|' + ground, [ink, ground, where]);
  }
  return [...seen.values()];
}"""


def worst_contrast(page: Any) -> tuple[float, str]:
    """The lowest ratio of all shown texts, and where it is."""
    pairs = page.evaluate(_PAIRS)
    assert len(pairs) >= 5
    return min((ratio(ink, ground), f"{where} ({ink} on {ground})") for ink, ground, where in pairs)


def ratio(ink: str, ground: str) -> float:
    """1 to 21, by WCAG's relative luminance of two ``rgb(…)`` colours."""
    high, low = sorted((luminance(ink), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """0 to 1."""
    channels = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
