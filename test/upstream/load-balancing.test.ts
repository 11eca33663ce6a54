import { createServer } from "node:http";
import type { Socket } from "node:net";
import t, { type Test } from "tap";
import {
  BackendGroup,
  type FailedAttempt,
  LoadBalancer,
  nextAttempt,
} from "../../src/core/upstream/backends.ts";
import { ask, QueryMetrics } from "../../src/core/upstream/database.ts";
import { parseTarget } from "../../src/core/upstream/target.ts";
import { eventually } from "../kit/eventually.ts";
import { listening } from "../kit/listening.ts";
import { sentBytes } from "../kit/process-info.ts";
import { type OnRequest, RawUpstream, wireAnswer } from "../kit/raw-upstream.ts";
import { backendOptions, plainQuery, queryFor } from "./asking.ts";

const answering: OnRequest = (socket) => socket.write(wireAnswer("{}"));

function candidate(name: string, load = 0, isLive = true, failedAt = 0) {
  return { name, load, isLive, failedAt };
}

const held = {
  largest: 100,
  hold() {},
  signal: new AbortController().signal,
  ...plainQuery,
};

const none = new Set<ReturnType<typeof candidate>>();

const sentRead: FailedAttempt = {
  isRead: true,
  isUnsent: false,
  hasReceived: false,
  isBroken: true,
  isRepeat: false,
  untried: undefined,
};

const attempts: Record<string, [Partial<FailedAttempt>, ReturnType<typeof nextAttempt>]> = {
  "a read whose connection broke goes to a live backend": [{ untried: "live" }, "repeat at other"],
  "such a read goes to the same backend if no other is live": [{ untried: "ejected" }, "repeat"],
  "such a read goes to the same backend if there is no other": [{}, "repeat"],
  "a read is not repeated twice": [{ isRepeat: true, untried: "live" }, "none"],
  "a read is not repeated after the first byte of a response": [
    { hasReceived: true, untried: "live" },
    "none",
  ],
  "a read is not repeated after a timeout": [{ isBroken: false, untried: "live" }, "none"],
  "a change that was sent is not repeated": [{ isRead: false, untried: "live" }, "none"],
  "a change that was not sent goes to a live backend": [
    { isRead: false, isUnsent: true, untried: "live" },
    "other",
  ],
  "a change that was not sent goes even to an ejected backend": [
    { isRead: false, isUnsent: true, untried: "ejected" },
    "other",
  ],
  "what was not sent goes to every other backend, even after a repeat": [
    { isUnsent: true, isBroken: false, isRepeat: true, untried: "ejected" },
    "other",
  ],
  "a change that was not sent goes to the same backend if there is no other": [
    { isRead: false, isUnsent: true },
    "repeat",
  ],
  "what was not sent is not repeated after a timeout": [
    { isUnsent: true, isBroken: false },
    "none",
  ],
};

for (const [title, [facts, expected]] of Object.entries(attempts)) {
  t.test(title, async (t) => {
    t.equal(nextAttempt({ ...sentRead, ...facts }), expected);
  });
}

async function rawUpstream(t: Test, onRequest: OnRequest): Promise<RawUpstream> {
  const upstream = await new RawUpstream((socket, request, connection) => {
    if (isQuery(request)) onRequest(socket, request, connection);
    else socket.end(wireAnswer("{}"));
  }).listen(t);
  return upstream;
}

function isQuery(request: string): boolean {
  return request.startsWith("POST /query ");
}

function queriesOf({ requests }: RawUpstream): number {
  return requests.filter(isQuery).length;
}

async function balanced(t: Test, urls: readonly string[], connections = 8) {
  const changes: string[] = [];
  const metrics = new QueryMetrics();
  const onChange = (name: string, isLive: boolean) =>
    changes.push(`${name} ${isLive ? "returned" : "ejected"}`);
  const group = new BackendGroup(
    urls.map(parseTarget),
    backendOptions({ connections, onChange, metrics }),
  );
  t.teardown(() => group.close());
  const server = createServer((request, response) => {
    group.run(...queryFor(response, { isRead: request.url === "/read" }));
  });
  const url = `http://127.0.0.1:${await listening(t, server)}`;
  const send = async (kind: "read" | "write") => {
    const answer = await fetch(`${url}/${kind}`);
    return { status: answer.status, text: await answer.text().catch(() => "cut") };
  };
  return { group, changes, metrics, send };
}

t.test("the least busy live backend is chosen, and equals take turns", async (t) => {
  const [a, b, c] = [candidate("a"), candidate("b"), candidate("c", 0, false)];
  const balancer = new LoadBalancer([a, b, c]);
  const names = Array.from({ length: 4 }, () => balancer.leastBusy(none)?.name);
  t.strictSame(names, ["a", "b", "a", "b"]);
  a.load = 2;
  b.load = 1;
  t.equal(balancer.leastBusy(none), b);
  t.equal(balancer.leastBusy(none), b, "load counts more than taking turns");
  t.equal(balancer.leastBusy(new Set([b])), a);
  t.equal(balancer.leastBusy(new Set([a, b])), undefined);
  t.equal(balancer.first(), a);
});

t.test("if none is live, the one that failed longest ago is tried", async (t) => {
  const [a, b] = [candidate("a", 0, false, 20), candidate("b", 9, false, 10)];
  const balancer = new LoadBalancer([a, b]);
  t.equal(balancer.leastBusy(none), undefined);
  t.equal(balancer.leastRecentlyFailed(none), b);
  t.equal(balancer.leastRecentlyFailed(new Set([b])), a);
  t.equal(balancer.first(), undefined);
});

t.test("a read is not repeated once a byte of its response has arrived", async (t) => {
  const good = await rawUpstream(t, answering);
  const bad = await rawUpstream(t, (socket) => socket.write("HTTP/1.1", () => socket.destroy()));
  const { send } = await balanced(t, [bad.url, good.url]);
  t.strictSame(await send("read"), { status: 502, text: "upstream_broken" });
  t.equal(queriesOf(good), 0);
});

const endings: Record<string, (socket: Socket) => void> = {
  "is closed": (socket) => socket.destroy(),
  "is closed with a 408": (socket) => {
    socket.write("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n");
    while (sentBytes(socket).unread === 0); // On a busy system it takes a while to arrive.
  },
};
for (const [how, end] of Object.entries(endings)) {
  const name = `a write is sent again if its idle connection ${how} before a byte of it is sent`;
  t.test(name, async (t) => {
    const sockets: Socket[] = [];
    const only = await rawUpstream(t, (socket) => {
      sockets.push(socket);
      socket.write(wireAnswer("{}"));
    });
    const { group, send } = await balanced(t, [only.url]);
    t.equal((await send("write")).status, 200);
    // The next request is written only after the sockets have been read again.
    await new Promise((resolve) => setImmediate(resolve));
    for (const socket of sockets.slice(0, 1)) end(socket);
    t.equal((await ask(group, { ...held, isRead: false })).body.toString(), "{}");
    t.equal(queriesOf(only), 2);
    t.equal(new Set(sockets).size, 2, "on a new connection");
  });
}

t.test("queries that wait for an ejected backend go to another one", async (t) => {
  const onFull: Socket[] = [];
  const onOther: Socket[] = [];
  const full = await rawUpstream(t, (socket) => void onFull.push(socket));
  const other = await rawUpstream(t, (socket) => void onOther.push(socket));
  const { send, changes, metrics, group } = await balanced(t, [full.url, other.url], 4);
  const queries = Array.from({ length: 16 }, () => send("write"));
  await eventually("both are full", () => onFull.length === 4 && onOther.length === 4);
  await eventually("the others wait", () => metrics.waiting === 8);
  t.strictSame(
    group.targets.map(({ busy }) => busy),
    [4, 4],
  );
  for (const socket of onFull.splice(0, 3)) socket.resetAndDestroy();
  await eventually("it is ejected", () => changes.length === 1);
  const answerAll = (sockets: Socket[]) => {
    for (const socket of sockets.splice(0)) socket.write(wireAnswer("{}"));
  };
  await eventually("the other one gets all that waited", () => {
    answerAll(onOther);
    return queriesOf(other) === 10;
  });
  answerAll(onOther);
  await eventually("the first two broken connections were replaced", () => onFull.length === 3);
  answerAll(onFull);
  const answers = await Promise.all(queries);
  t.equal(answers.filter(({ status }) => status !== 200).length, 3);
  t.equal(queriesOf(full), 6);
});

t.test("an upload that waits for an ejected backend goes to another one", async (t) => {
  const held: Socket[] = [];
  const first = await rawUpstream(t, (socket) => void held.push(socket));
  const other = await rawUpstream(t, answering);
  const { group } = await balanced(t, [first.url, other.url], 2);
  const server = createServer((request, response) => {
    response.setMaxListeners(20);
    const headers = { "content-length": request.headers["content-length"] };
    const slot = { user: "alice", authorizeAgain() {} };
    const stream = { request, response, headers, addedHeaders: [], slot, body: request };
    group.forwardStream(stream).catch(() => response.writeHead(503).end());
  });
  const url = `http://127.0.0.1:${await listening(t, server)}/query`;
  const upload = () => fetch(url, { method: "POST", body: "{}" }).then(({ status }) => status);
  const running = upload();
  await eventually("it holds the only connection for uploads", () => held.length === 1);
  const [ejected] = group.targets;
  const waiting = [upload(), upload()];
  await eventually("the others wait", () => ejected?.waiting === 2);
  for (let failure = 0; failure < 3; failure++) ejected?.noteFailure();
  t.strictSame(await Promise.all(waiting), [200, 200]);
  t.equal(queriesOf(first), 1, "the first backend got neither");
  held[0]?.write(wireAnswer("{}"));
  t.equal(await running, 200);
});
