/**
 * Measures a store: a query with and without it, changes at three replicas, and the load of idle replicas on
 * PostgreSQL.
 *
 * `node bench/store.ts [--users 100000] [--changes 300] [--seconds 5] [--rounds 5] [--json]`
 */

import { writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { parseArgs } from "node:util";
import { load } from "./rig/load.ts";
import { quantile, summarize } from "./rig/statistics.ts";
import { openSetting, type Running, type Setting, tokenOf } from "./store/setting.ts";

const { values: flags } = parseArgs({
  options: {
    users: { type: "string", default: "100000" },
    changes: { type: "string", default: "300" },
    seconds: { type: "string", default: "5" },
    rounds: { type: "string", default: "5" },
    json: { type: "boolean", default: false },
  },
});
const users = Number(flags.users);
const changes = Number(flags.changes);
const seconds = Number(flags.seconds);
const REPLICAS = 3;
const AT_ONCE = 8;
const IDLE_SECONDS = 20;

/** Transactions of the store's database so far; a single statement is one. */
async function transactions({ server }: Setting): Promise<number> {
  const [row] = await server.sql(
    "select xact_commit + xact_rollback as count from pg_stat_database where datname = 'store'",
  );
  return Number(row?.count);
}

/** The load of each replica on the store per second without changes. */
async function idleLoad(setting: Setting) {
  const bytes = () => setting.replicas.reduce((sum, { proxy }) => sum + proxy.bytes, 0);
  const [transactionsBefore, bytesBefore] = [await transactions(setting), bytes()];
  const began = performance.now();
  await pause(IDLE_SECONDS * 1000);
  const share = ((performance.now() - began) / 1000) * REPLICAS;
  return {
    "statements per replica and second":
      ((await transactions(setting)) - transactionsBefore) / share,
    "bytes per replica and second": (bytes() - bytesBefore) / share,
  };
}

/** Milliseconds of grants, one at a time, at each replica in turn. */
async function grantTimes({ replicas }: Setting, token: string, atOnce: number): Promise<number[]> {
  const times: number[] = [];
  let next = 0;
  async function change(): Promise<void> {
    while (next < changes) {
      const at = next++;
      const user = `user${(at * 7919) % users}`;
      const [replica] = replicas.slice(at % REPLICAS);
      const start = performance.now();
      const answer = await fetch(`${replica?.url}/api/access/${user}/main`, {
        method: "PUT",
        headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
        body: JSON.stringify({ role: at % 2 === 0 ? "ReadWrite" : "ReadOnly" }),
      });
      const text = await answer.text();
      if (!answer.ok) throw new Error(text);
      times.push(performance.now() - start);
    }
  }
  await Promise.all(Array.from({ length: atOnce }, change));
  return times;
}

function percentiles(what: string, times: readonly number[]) {
  return {
    [`${what}, median ms`]: quantile(times, 0.5),
    [`${what}, p99 ms`]: quantile(times, 0.99),
    [`${what}, longest ms`]: Math.max(...times),
  };
}

/** Microseconds of processor time of a query with and without a store, in turn. */
async function queryCosts({ single, replicas: [replica] }: Setting, token: string) {
  if (replica === undefined) throw new Error("no replica");
  const [tokenFile, bodyFile] = ["token", "body"].map((name) => path.join(single.home, name));
  if (tokenFile === undefined || bodyFile === undefined) throw new Error("no file");
  writeFileSync(tokenFile, token);
  writeFileSync(bodyFile, '{"Select":{"database":"main","from":"t","columns":["*"]}}');
  const cost = async (gateway: Running) => {
    const options = { port: gateway.port, connections: 32, seconds, tokenFile, bodyFile };
    const { cpu, failed, refused } = await load(gateway, options);
    if (failed + refused > 0) throw new Error(`${failed + refused} queries failed`);
    return cpu;
  };
  await cost(single);
  await cost(replica);
  const pairs: [number, number][] = [];
  for (let round = 0; round < Number(flags.rounds); round++) {
    pairs.push([await cost(single), await cost(replica)]);
  }
  const without = summarize(pairs.map(([one]) => one));
  const withStore = summarize(pairs.map(([, other]) => other));
  const ratio = summarize(pairs.map(([one, other]) => other / one));
  return {
    "a query without a store, median µs": without.median,
    "a query with a store, median µs": withStore.median,
    // The minimum, since other load on the machine only adds time.
    "a query without a store, least µs": without.least,
    "a query with a store, least µs": withStore.least,
    "with to without in one round, median": ratio.median,
  };
}

await using opened = new AsyncDisposableStack();
const setting = await openSetting(opened, { users, count: REPLICAS });
const [first] = setting.replicas;
if (first === undefined) throw new Error("no replica");
const admin = await tokenOf(first, "admin");
const results = {
  users,
  "import, s": setting.importSeconds,
  ...(await idleLoad(setting)),
  ...percentiles("a grant", await grantTimes(setting, admin, 1)),
  ...percentiles(`of ${AT_ONCE} grants at once`, await grantTimes(setting, admin, AT_ONCE)),
  ...(await queryCosts(setting, await tokenOf(setting.single, "user7"))),
};
if (flags.json) console.log(JSON.stringify(results));
else {
  const rounded = Object.entries(results).map(([key, value]) => [key, Number(value.toFixed(3))]);
  console.table(Object.fromEntries(rounded));
}
