import t, { type Test } from "tap";
import {
  checkRefused,
  type Door,
  openSite,
  type Site,
  sendBytes,
  statusesOf,
  through,
} from "./kit.ts";

const chunked = "Transfer-Encoding: chunked\r\n";
const close = "Connection: close\r\n";
/** A request that somebody would like to have taken for one of its own. */
const smuggled = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

/** Fields behind a chunked body that would mean something in a head. */
const trailers =
  "X-Gatehouse-User: root\r\nHost: evil\r\nAuthorization: Bearer x\r\nConnection: host\r\n";

interface Shape {
  /** The lines of the head that tell the body's length. */
  readonly head: string;
  readonly body: string;
}

/** A body as one chunk, its size spelled in some way, and what follows it. */
function chunk({ body }: Door, spell = (hex: string) => hex, end = "\r\n0\r\n\r\n"): string {
  return `${spell(body.length.toString(16))}\r\n${body}${end}`;
}

/** Ways to tell a body's length that two readers could read differently. */
function brokenShapes(door: Door): Record<string, Shape> {
  const { body } = door;
  const { length } = body;
  const whole = chunk(door);
  const lengths = [
    ...[`+${length}`, `0x${length.toString(16)}`, `-${length}`, `${length} ,${length}`],
    ...[`${length}, ${length}`, `${length} ${length}`, `0${length}`, `${length}.0`, `${length}e0`],
    ...["", "99999999999999999999999", "18446744073709551615", "9007199254740993", "ten"],
  ];
  const codings = [
    ...["chunked, identity", "identity, chunked", "gzip, chunked", "chunked, chunked", ", chunked"],
    ...["chunked,", "xchunked", "chunkedx", "chunked;q=1", '"chunked"', "identity", "gzip", ""],
    ...["\x0bchunked", "chunked\t", "chunk\xe9d", "\r\n chunked"],
  ];
  const sizes = [" ", "\t", "+", "-", "0x", "1000000000000000", "\x00", "\u00b9", "_", "."];
  return {
    "CL.TE": { head: `Content-Length: ${length}\r\n${chunked}`, body: `0\r\n\r\n${smuggled}` },
    "TE.CL": { head: `${chunked}Content-Length: 4\r\n`, body: whole + smuggled },
    "two equal lengths": { head: `Content-Length: ${length}\r\n`.repeat(2), body },
    "two lengths": { head: `Content-Length: ${length}\r\nContent-Length: 0\r\n`, body },
    "two codings": { head: chunked + chunked, body: whole },
    "chunked and another": { head: `${chunked}Transfer-Encoding: x\r\n`, body: whole },
    "another and chunked": { head: `Transfer-Encoding: identity\r\n${chunked}`, body: whole },
    "a space before the colon": { head: "Transfer-Encoding : chunked\r\n", body: whole },
    "a line end without CR": { head: `X-A: b\n${chunked}`, body: whole },
    ...Object.fromEntries(
      lengths.map((text) => [
        `Content-Length: ${text}`,
        { head: `Content-Length: ${text}\r\n`, body: body + smuggled },
      ]),
    ),
    ...Object.fromEntries(
      codings.map((text) => [
        `Transfer-Encoding: ${text}`,
        { head: `Transfer-Encoding: ${text}\r\n`, body: whole + smuggled },
      ]),
    ),
    ...Object.fromEntries(
      sizes.map((text) => [
        `a chunk's size after ${JSON.stringify(text)}`,
        { head: chunked, body: chunk(door, (hex) => text + hex) },
      ]),
    ),
    "a space after a chunk's size": { head: chunked, body: chunk(door, (hex) => `${hex} `) },
    "LF in an extension": { head: chunked, body: chunk(door, (hex) => `${hex};\n`) },
    "LF in a quoted extension": { head: chunked, body: chunk(door, (hex) => `${hex};a="\n"`) },
    "CR in an extension": { head: chunked, body: chunk(door, (hex) => `${hex};\rx`) },
    "LF alone in chunks": { head: chunked, body: whole.replaceAll("\r\n", "\n") },
    "LF alone behind a size": { head: chunked, body: whole.replace("\r\n", "\n") },
    "CR alone behind a size": { head: chunked, body: whole.replace("\r\n", "\r") },
  };
}

/** Chunked bodies that break only after their first bytes have come. */
function brokenBodies(door: Door): Record<string, Shape> {
  return {
    "LF alone behind a chunk": { head: chunked, body: chunk(door, undefined, "\n0\r\n\r\n") },
    "more than the size says": { head: chunked, body: chunk(door, undefined, "xx\r\n0\r\n\r\n") },
    "LF alone behind the last chunk": {
      head: chunked,
      body: chunk(door, undefined, "\r\n0\n\r\n"),
    },
    "a length for a trailer": {
      head: chunked,
      body: chunk(door, undefined, "\r\n0\r\nContent-Length: 7\r\n\r\n"),
    },
    "a trailer that is none": { head: chunked, body: chunk(door, undefined, "\r\n0\r\nx\r\n\r\n") },
  };
}

/** Ways to tell a body's length that mean one thing only. */
function plainShapes(door: Door): Record<string, Shape> {
  const coded = (head: string, body = chunk(door)) => ({ head: head + close, body });
  return {
    "in capitals": coded("TRANSFER-ENCODING: CHUNKED\r\n"),
    "behind a tab": coded("Transfer-Encoding:\tchunked\r\n"),
    "with an extension": coded(
      chunked,
      chunk(door, (hex) => `${hex};a="b"`),
    ),
    "with zeros before a size": coded(
      chunked,
      chunk(door, (hex) => `000${hex}`),
    ),
    "with another spelling beside it": coded(`${chunked}Content_Length: 4\r\n`),
    "with trailers": coded(chunked, chunk(door, undefined, `\r\n0\r\n${trailers}\r\n`)),
  };
}

/** Sends a request that is taken and returns the bytes that the upstream got. */
async function passed(t: Test, site: Site, bytes: string, what = "a good one"): Promise<string> {
  site.witness.takeBytes();
  t.strictSame(statusesOf(await sendBytes(site, bytes)), [200], what);
  return site.witness.takeBytes();
}

const site = await openSite(t);
const embedded = await openSite(t, { isEmbedded: true });
const ways = [
  ...site.doors.map((door) => ({ site, door })),
  { site: embedded, door: embedded.mcp },
];

for (const { site, door } of ways) {
  t.test(`no odd framing brings anything through ${door.name}`, async (t) => {
    const expected = await passed(t, site, through(door));
    for (const [what, { head, body }] of Object.entries(brokenShapes(door))) {
      const text = await sendBytes(site, through(door, { head, body }));
      checkRefused(t, text, 400, "bad_request", what);
      t.equal(site.witness.takeBytes(), "", what);
    }
    t.equal(await passed(t, site, through(door)), expected, "and what comes next is as ever");
  });

  t.test(`a body that breaks on its way is no request behind ${door.name}`, async (t) => {
    for (const [what, { head, body }] of Object.entries(brokenBodies(door))) {
      const text = await sendBytes(site, through(door, { head, body: body + smuggled }));
      checkRefused(t, text, 400, "bad_request", what);
      t.equal(site.witness.take().length, 0, what);
      t.notMatch(site.witness.takeBytes(), /smuggled|\r\n0\r\n/, "and has no end there");
    }
  });

  t.test(`what may be spelled in several ways goes up in one from ${door.name}`, async (t) => {
    const head = chunked + close;
    const expected = await passed(t, site, through(door, { head, body: chunk(door) }));
    for (const [what, { head, body }] of Object.entries(plainShapes(door))) {
      t.equal(await passed(t, site, through(door, { head, body }), what), expected, what);
    }
  });

  t.test(`a chunked body in HTTP/1.0 is refused by ${door.name}`, async (t) => {
    const odd = { version: "HTTP/1.0", head: chunked, body: chunk(door) };
    checkRefused(t, await sendBytes(site, through(door, odd)), 400, "bad_request", "HTTP/1.0");
    t.equal(site.witness.takeBytes(), "");
  });
}

t.test("bytes behind a body that has no length are no part of it", async (t) => {
  const body = smuggled.replace("\r\n\r\n", `\r\n${close}\r\n`);
  const text = await sendBytes(site, through(site.query, { head: "", body }));
  t.strictSame(statusesOf(text), [400, 404], "the body is empty, the rest a request of its own");
  t.equal(site.witness.takeBytes(), "");
});
