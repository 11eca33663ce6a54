/**
 * Measures row-level security and column grants of PostgreSQL itself, without a gateway: a Select of two
 * columns as the owner of the table, as a role with a policy, and as such a role that each request sets in
 * its own transaction. Prints processor time of the backend per request.
 *
 * `node bench/row-security.ts [--rounds 5] [--requests 5000] [--json]`
 */
import { parseArgs } from "node:util";
import pg from "pg";
import { printFound } from "./rig/machine.ts";
import { openPostgres } from "./rig/opened.ts";
import { cpuSecondsOf } from "./rig/program.ts";
import { rangeText, summarize } from "./rig/statistics.ts";
import { markdownTable } from "./rig/table.ts";

const { values: flags } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    requests: { type: "string", default: "5000" },
    json: { type: "boolean", default: false },
  },
});
const requests = Number(flags.requests);

await using opened = new AsyncDisposableStack();
const server = await openPostgres(opened);
await server.sql(`create table users (id int primary key, name text, team text, salary int);
  insert into users select i, 'user ' || i, case when i % 2 = 0 then 'blue' else 'red' end, i
    from generate_series(1, 1000) as i;
  alter table users enable row level security;
  create policy own_team on users using (team = current_setting('app.team'));
  create role narrowed;
  grant select (id, name, team) on users to narrowed`);
await server.sql("vacuum analyze users");

async function connect(...first: string[]): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: server.socketUrl("postgres") });
  await client.connect();
  opened.defer(() => client.end());
  for (const statement of first) await client.query(statement);
  return client;
}

/** A way to query, with its own connection. */
interface Way {
  readonly name: string;
  readonly client: pg.Client;
  readonly ask: (client: pg.Client) => Promise<unknown>;
}

const select = { name: "two columns", text: "select id, name from users limit 10" };
const putOn = {
  name: "role and claims",
  text: "select set_config('role', $1, true), set_config('app.team', $2, true)",
  values: ["narrowed", "blue"],
};
const ways: Way[] = [
  { name: "its owner", client: await connect(), ask: (client) => client.query(select) },
  {
    name: "a role under a policy",
    client: await connect("set role narrowed", "set app.team = 'blue'"),
    ask: (client) => client.query(select),
  },
  {
    name: "the same, put on for each request",
    client: await connect(),
    async ask(client) {
      await client.query("begin");
      await client.query(putOn);
      await client.query(select);
      await client.query("commit");
    },
  },
];

const taken = [];
for (const { name, client, ask } of ways) {
  const { rows } = await client.query<{ pid: number }>("select pg_backend_pid() as pid");
  taken.push({ name, client, ask, pid: rows[0]?.pid ?? 0, samples: [] as number[] });
}
for (let round = 1; round <= Number(flags.rounds); round++) {
  for (const { client, ask, pid, samples } of taken) {
    const before = cpuSecondsOf(pid);
    for (let request = 0; request < requests; request++) await ask(client);
    samples.push(((cpuSecondsOf(pid) - before) * 1e6) / requests);
  }
  console.error(`round ${round} of ${flags.rounds}`);
}
const costs = taken.map(({ name, samples }) => ({ name, cpu: summarize(samples) }));
printFound(flags.json, { costs }, () => {
  const rows = costs.map(({ name, cpu }) => [name, cpu.median.toFixed(1), rangeText(cpu, 1)]);
  return markdownTable(["asked as", "µs of CPU a request", "range"], rows);
});
