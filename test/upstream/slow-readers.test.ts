import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { setTimeout as delay, setImmediate as nextTurn } from "node:timers/promises";
import t, { type Test } from "tap";
import { BackendGroup } from "../../src/upstream/backends.ts";
import { parseTarget } from "../../src/upstream/target.ts";
import { open } from "../kit/client.ts";
import { untilStill } from "../kit/eventually.ts";
import { listening } from "../kit/listening.ts";
import { RecordingUpstream } from "../kit/upstream.ts";
import { backendOptions, queryFor } from "./asking.ts";

/** An answer of so many bytes that no other one has at the same place. */
function content(seed: number, length: number): Buffer {
  const bytes = Buffer.allocUnsafeSlow(length);
  let state = seed * 2_654_435_761 + 1;
  for (let at = 0; at < length; at++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    bytes[at] = state >>> 24;
  }
  return bytes;
}

const digest = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");

/** A server that forwards to `upstream` on two connections. */
async function forwarder(t: Test, upstream: RecordingUpstream): Promise<string> {
  const options = backendOptions({ connections: 2 });
  const group = new BackendGroup([parseTarget(upstream.url)], options);
  const server = createServer((request, response) => {
    const body = Buffer.from(request.url ?? "");
    group.forward(...queryFor(response, { body }));
  });
  t.teardown(() => group.close());
  return `http://127.0.0.1:${await listening(t, server)}`;
}

/** Reads an answer, now and then with a pause. */
async function readSlowly(answer: IncomingMessage, pauseEvery: number): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of answer) {
    pieces.push(piece);
    if (pieces.length % pauseEvery === 0) await delay(1);
  }
  return Buffer.concat(pieces);
}

/** Sizes about those at which a piece comes with the end, or with other memory. */
const sizes = [1, 4095, 4096, 4097, 8191, 8193, 65_537, 262_143, 262_145, 1_500_000];

t.test("long answers that clients take at their own pace never get mixed up", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  upstream.answer = ({ body }, response) => {
    const [seed = 0, length = 0, isChunked = 0] = body.toString().slice(1).split("-").map(Number);
    if (isChunked === 0) response.setHeader("Content-Length", length);
    const whole = content(seed, length);
    for (let at = 0; at < length; at += 50_000) response.write(whole.subarray(at, at + 50_000));
    response.end();
  };
  const url = await forwarder(t, upstream);
  const asked = Array.from({ length: 60 }, async (_, seed) => {
    const length = sizes[seed % sizes.length] ?? 0;
    const answer = await open(`${url}/${seed}-${length}-${seed % 2}`);
    const found = await readSlowly(answer, (seed % 7) + 1);
    return found.length === length && digest(found) === digest(content(seed, length));
  });
  const results = await Promise.all(asked);
  t.strictSame(
    results,
    asked.map(() => true),
  );
});

t.test("what a client has not taken yet is not written over by what comes behind it", async (t) => {
  const upstream = await new RecordingUpstream().listen();
  t.teardown(() => upstream.close());
  const whole = content(1, 24_000_000);
  let written = 0;
  upstream.answer = async (_, response) => {
    response.setHeader("Content-Length", whole.length);
    // Pieces short enough that the answer takes several before it is full.
    for (let at = 0; at < whole.length; at += 10_000) {
      const hasRoom = response.write(whole.subarray(at, at + 10_000));
      if (!hasRoom) await once(response, "drain");
      written = at;
      await nextTurn();
    }
    response.end();
  };
  const answer = await open(await forwarder(t, upstream));
  await untilStill("the upstream", () => written);
  t.equal(digest(await readSlowly(answer, 50)), digest(whole));
});
