"""An encoder whose products take each vector as two rows of 8 bits: the second holds what rounding the first
leaves.

For a model that :mod:`providers._bert_rows` takes too far from its floats. Fifteen bits stand for an
activation, so nothing has to be moved into the weights, and weights that come in 8 bits with a scale for each
output are multiplied as they are: what is computed is what their floats would compute. One scale, measured
once, serves every token of every text, so no text depends on another.

Measured (onnxruntime 1.32, one thread, AVX-512 with VNNI, all-MiniLM-L6-v2 from weights in 8 bits): 1 -
cosine of its token vectors to the same weights as floats is 0.000003 on average, 0.0011 with the rows of
:mod:`providers._bert_rows`, which take 0.6 times as long. Of that 0.0011, rounding the weights once more
makes 0.0002, and rounding the activations 0.0001 (what the attention reads), 0.0004 (its answer), 0.0003 and
0.0002 (what the feed-forward layer's two products read), so all of them take two rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from providers._bert_onnx import ACTIVATIONS, CONTRIB, EMBEDDINGS, OUTPUT, norm
from providers._bert_rows import LEAST, MIDDLE, Product, Ranges, RowSource, RowsWriter
from providers._bert_weights import LAYER

__all__ = ["two_rows_graph"]

#: How many times what was measured an activation may be. With 1.25 two tokens of 2895 fell outside; 2, 4 and
#: 8 take 1 - cosine to 0.8, 3 and 12 millionths.
MARGIN = 4.0
#: Steps of the second row within one of the first.
FINER = 254


class _Rows(NamedTuple):
    """Names of two rows, the step of the first, and its zero."""

    coarse: str
    fine: str
    step: float
    zero: int


def two_rows_graph(name: str, source: RowSource, ranges: Ranges, lengths: bool = True) -> bytes:
    """The encoder, used like that of :func:`providers._bert_rows.rows_graph`, whose arguments these are."""
    writer = _Writer(source, ranges, lengths)
    writer.write()
    return writer.model(name)


class _Writer(RowsWriter):
    """Two rows a vector."""

    def write(self) -> None:
        """Add all nodes."""
        graph, source = self.graph, self._source
        parts = self.begin()
        name = "hidden"
        hidden = norm(graph, source, parts, name, f"{EMBEDDINGS}LayerNorm")
        for n in range(source.shape.layers):
            at, of = f"layer{n}", LAYER.format(n)
            mixed = self._mixed(at, of, self._rows(hidden, name, f"{at}.qkv"))
            # an average of the values lies between them
            out = self._product(
                self._rows(mixed, f"{at}.v", f"{at}.out"), f"{of}attention.output.dense", f"{at}.out"
            )
            of_attended = f"{of}attention.output.LayerNorm"
            attended = norm(graph, source, [*out, hidden], f"{at}.attended", of_attended)
            rows = self._rows(attended, f"{at}.attended", f"{at}.inner")
            inner = self._sum(rows, f"{of}intermediate.dense", f"{at}.inner")
            kind, domain = ACTIVATIONS[source.shape.activation]
            active = graph.add(kind, [inner], f"{at}.active", domain)
            outer = self._product(self._active_rows(active, at), f"{of}output.dense", f"{at}.outer")
            name = f"{at}.hidden"
            output = OUTPUT if n == source.shape.layers - 1 else name
            hidden = norm(graph, source, [*outer, attended], output, f"{of}output.LayerNorm")

    def _mixed(self, at: str, of: str, rows: _Rows) -> str:
        three = [
            self._sum(rows, f"{of}attention.self.{name}", f"{at}.{name[0]}")
            for name in ("query", "key", "value")
        ]
        return self.attend(three, f"{at}.mixed")

    def _rows(self, vectors: str, name: str, at: str) -> _Rows:
        """``vectors``, within the ranges of the tensor ``name``, as two rows."""
        peak = max(np.abs(self._ranges.low[name]).max(), np.abs(self._ranges.high[name]).max())
        return self._split(vectors, at, MARGIN * max(float(peak), 1e-3) / 127, MIDDLE)

    def _active_rows(self, active: str, at: str) -> _Rows:
        """``active``, which never falls below its least value, as two rows."""
        least = LEAST[self._source.shape.activation]
        top = MARGIN * max(float(self._ranges.high[f"{at}.active"].max()), 1e-3)
        step = (top + least) / 255
        return self._split(active, f"{at}.outer", step, round(least / step))

    def _split(self, vectors: str, at: str, step: float, zero: int) -> _Rows:
        graph = self.graph
        scale = graph.constant(f"{at}.rows.step", np.array(step, np.float32))
        middle = graph.constant(f"{at}.rows.zero", np.array(zero, np.uint8))
        coarse = graph.add("QuantizeLinear", [vectors, scale, middle], f"{at}.rows")
        back = graph.add("DequantizeLinear", [coarse, scale, middle], f"{at}.back")
        rest = graph.add("Sub", [vectors, back], f"{at}.rest")
        finer = graph.constant(f"{at}.fine.step", np.array(step / FINER, np.float32))
        return _Rows(coarse, graph.add("QuantizeLinear", [rest, finer, "middle"], f"{at}.fine"), step, zero)

    def _product(self, rows: _Rows, name: str, output: str) -> list[str]:
        """Add the products of ``rows`` with the matrix ``name``; their sum is what is meant."""
        graph = self.graph
        weights, bias = self._source.matrix(name)
        product = Product.of(weights, np.zeros(weights.shape[1], np.float32))
        coarse = product.add(graph, rows.coarse, f"{output}.coarse", rows.step, rows.zero, bias)
        inputs = [
            rows.fine,
            f"{coarse}.weight",
            graph.constant(f"{output}.finer.step", np.full(1, rows.step / FINER, np.float32)),
            f"{coarse}.scale",
            graph.constant(f"{output}.finer.zero", np.full(1, MIDDLE, np.uint8)),
        ]
        return [coarse, graph.add("MatMulIntegerToFloat", inputs, f"{output}.finer", CONTRIB)]

    def _sum(self, rows: _Rows, name: str, output: str) -> str:
        return self.graph.add("Add", self._product(rows, name, output), output)
