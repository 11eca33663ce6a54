import { Agent, type IncomingMessage, request } from "node:http";
import t, { type Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { startGateway } from "../kit/gateway.ts";
import { caseCount } from "../kit/nightly.ts";
import { openDescriptors } from "../kit/process-info.ts";
import { insert, queryHeaders, select } from "../kit/queries.ts";
import { RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";

const FAILURES = caseCount(1_000, 10_000);
const CLIENTS = 20;
const HEAP_MARGIN_BYTES = 24 * 1024 * 1024;

/** On SIGUSR2 the gateway collects garbage and prints the used bytes of its heap. */
const heapReporter = `process.on("SIGUSR2",()=>{gc();console.log(JSON.stringify({msg:"heap",bytes:process.memoryUsage().heapUsed}))})`;

async function scene(t: Test) {
  const state = { isFailing: true };
  let count = 0;
  const upstream = await new RawUpstream((socket) => {
    const answer = wireAnswer('{"status":"success"}');
    if (!state.isFailing) return socket.write(answer);
    const ways = [
      () => socket.destroy(),
      () => socket.resetAndDestroy(),
      () => socket.end("not HTTP\r\n\r\n"),
      () => socket.end(answer.slice(0, 30)),
      () => socket.write(`${answer.slice(0, -5)}`, () => socket.resetAndDestroy()),
    ];
    return ways[count++ % ways.length]?.();
  }).listen(t);
  const preload = `data:text/javascript,${encodeURIComponent(heapReporter)}`;
  const env = { NODE_OPTIONS: `--expose-gc --import=${preload}` };
  const gateway = await startGateway(t, { upstream: upstream.url, env });
  return { state, gateway };
}

/** Returns the status, or undefined if the response was cut. */
async function ask(url: string, agent: Agent, token: string, body: string) {
  const { promise, resolve } = Promise.withResolvers<number | undefined>();
  const sent = request(url, { method: "POST", agent, headers: queryHeaders(token) });
  sent.once("error", () => resolve(undefined));
  sent.once("response", (answer: IncomingMessage) => {
    answer.on("error", () => resolve(undefined));
    answer.on("end", () => resolve(answer.statusCode)).resume();
  });
  sent.end(body);
  return promise;
}

t.test("thousands of failures leave neither sockets nor memory behind", async (t) => {
  const { state, gateway } = await scene(t);
  const token = await gateway.login();
  const { service } = gateway;
  const pid = service.child.pid ?? 0;
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  t.teardown(() => agent.destroy());

  async function fail(times: number): Promise<void> {
    let left = times;
    const keepFailing = async () => {
      while (left-- > 0) {
        const body = left % 2 === 0 ? select : insert;
        const status = await ask(`${gateway.url}/query`, agent, token, body);
        if (status !== 502 && status !== undefined) t.equal(status, 502);
      }
    };
    await Promise.all(Array.from({ length: CLIENTS }, keepFailing));
  }

  async function heap(): Promise<number> {
    const isReport = ({ msg }: Record<string, unknown>) => msg === "heap";
    service.log.splice(0);
    service.child.kill("SIGUSR2");
    return Number((await service.logged(isReport)).bytes);
  }

  await fail(FAILURES / 10);
  const heapBefore = await heap();
  const before = openDescriptors(pid);
  await fail(FAILURES);
  // The clients' own connections come and go with the cut responses.
  await eventually("all connections are closed", () => openDescriptors(pid) <= before + CLIENTS);
  const grown = (await heap()) - heapBefore;
  t.ok(grown < HEAP_MARGIN_BYTES, `the heap grew by ${grown} bytes`);

  state.isFailing = false;
  const all = await Promise.all(Array.from({ length: 64 }, () => gateway.query(select, token)));
  t.ok(
    all.every(({ status }) => status === 200),
    "every connection works again",
  );
});
