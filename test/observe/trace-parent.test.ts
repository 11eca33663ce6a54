import { parseTraceParent } from "@opentelemetry/core";
import fc from "fast-check";
import t from "tap";
import { traceIdOf } from "../../src/observe/trace-parent.ts";

const id = "0af7651916cd43dd8448eb211c80319c";
const parent = "b7ad6b7169203331";

t.test("a trace is known by the one form that a header may have", async (t) => {
  t.equal(traceIdOf(`00-${id}-${parent}-01`), id);
  t.equal(traceIdOf(`00-${id}-${parent}-00`), id);
  t.equal(traceIdOf(`cc-${id}-${parent}-01`), id, "also of a version that is yet to come");
  t.equal(traceIdOf(`cc-${id}-${parent}-01-what-comes-then`), id);
  const broken = [
    ...["", `00-${id}-${parent}`, `00-${id}-${parent}-01-more`, `00-${id}-${parent}-01-`],
    ...[`ff-${id}-${parent}-01`, `00-${"0".repeat(32)}-${parent}-01`],
    ...[`00-${id}-${"0".repeat(16)}-01`, `00-${id.toUpperCase()}-${parent}-01`],
    ...[`0-${id}-${parent}-01`, ` 00-${id}-${parent}-01`, `00-${id}-${parent}-01, 00`],
    `cc-${id}-${parent}-01.more`,
  ];
  for (const header of broken) t.equal(traceIdOf(header), undefined, header);
  t.equal(traceIdOf(undefined), undefined);
  t.equal(traceIdOf([`00-${id}-${parent}-01`]), undefined, "one header, and no list");
});

t.test("it is the trace that the official library reads there", async () => {
  const digits = { unit: fc.constantFrom(..."0123456789abcdef") };
  const hex = (length: number) =>
    fc.oneof(
      { arbitrary: fc.string({ ...digits, minLength: length, maxLength: length }), weight: 20 },
      { arbitrary: fc.constantFrom("0".repeat(length), "F".repeat(length), "f"), weight: 1 },
    );
  const version = fc.oneof(fc.constantFrom("00", "ff"), hex(2));
  const rest = fc.constantFrom("", "-", "-x");
  const header = fc.tuple(version, hex(32), hex(16), hex(2), rest);
  fc.assert(
    fc.property(header, ([version, traceId, spanId, flags, rest]) => {
      const text = `${version}-${traceId}-${spanId}-${flags}${rest}`;
      return traceIdOf(text) === parseTraceParent(text)?.traceId;
    }),
  );
});
