import type { Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { type Answer, createTable, insert, query, selectAll } from "./kit.ts";
import { startOn } from "./postgres/kit.ts";
import { startService } from "./postgres/service.ts";
import { send } from "./stalled.ts";

/** A server that can be killed and started again. */
export interface Crashable {
  crash(): Promise<void>;
  start(): Promise<void>;
}

/** Kills the server under eight writers and starts it again; judges what was acknowledged. */
export async function crashUnderLoad(t: Test, server: Crashable, address: string): Promise<void> {
  await query(address, { CreateDatabase: { database: "main" } });
  await query(address, createTable("rows", { id: "serial", tag: "int" }));

  let tag = 0;
  let isOver = false;
  const answers = new Map<number, Answer>();
  const write = async (): Promise<void> => {
    while (!isOver) {
      tag += 1;
      const mine = tag;
      answers.set(mine, await query(address, { Batch: [insert("rows", [{ tag: mine }])] }));
    }
  };
  const writers = Array.from({ length: 8 }, write);
  const answeredWith = (status: number, since: number): Promise<void> =>
    eventually(`it answers with ${status}`, () =>
      [...answers].some(([at, answer]) => at > since && answer.status === status),
    );
  await answeredWith(200, 50);
  await server.crash();
  await answeredWith(503, tag);
  await server.start();
  await answeredWith(200, tag);
  isOver = true;
  await Promise.all(writers);

  const { body } = await query(address, selectAll("rows", { columns: ["tag"] }));
  const stored = (body.data ?? []).map((row) => Number(Object.values(row ?? {})[0]));
  t.equal(new Set(stored).size, stored.length, "nothing is there twice");
  const kept = new Set(stored);
  for (const [at, { status, body }] of answers) {
    if (status === 200) t.ok(kept.has(at), `${at} was acknowledged`);
    else if (body.code !== "outcome_unknown") {
      t.equal(body.code, "database_unavailable");
      t.notOk(kept.has(at), `${at} was not carried out`);
    }
  }
}

/** Asks an engine whose server is not there yet, starts the server, and asks again. */
export async function waitForServer(t: Test, server: Crashable, address: string): Promise<void> {
  t.match(await query(address, selectAll("rows")), {
    status: 503,
    body: { code: "database_unavailable" },
  });
  await server.start();
  t.match(await query(address, selectAll("rows")), { status: 404 });
}

/**
 * Ends changes of the table `held`, whose commit hangs: by a client that leaves, by the time limit and by a
 * crash. `waiting` counts the commits that hang.
 */
export async function endAtCommit(
  t: Test,
  server: Crashable & { readonly url: string },
  waiting: () => Promise<number>,
): Promise<void> {
  const changes = [
    insert("held", [{ id: 1 }]),
    { Batch: [insert("held", [{ id: 2 }]), insert("held", [{ id: 3 }])] },
  ];
  const wait = (count: number) =>
    eventually(`${count} commits wait`, async () => (await waiting()) === count);
  const { service, address } = await startService(t, server.url);
  const requests = await Promise.all(changes.map((body) => send(address, body)));
  await wait(2);
  for (const request of requests) request.destroy();
  await wait(0);
  t.match(await query(address, selectAll("held")), { status: 200, body: { data: [] } });
  t.notMatch(service.output, /cannot be used/, "a client that leaves is no lost server");

  const limited = await startOn(t, server.url, { queryTimeLimit: 1000 });
  for (const body of changes) {
    t.match(await query(limited.address, body), {
      status: 503,
      body: { code: "outcome_unknown", message: /^The time limit of 1 seconds was reached/ },
    });
  }
  await wait(0);
  const answers = Promise.all(changes.map((body) => query(address, body)));
  await wait(2);
  await server.crash();
  for (const answer of await answers) {
    t.match(answer, {
      status: 503,
      body: { code: "outcome_unknown", message: /^The connection to the database was lost/ },
    });
  }
  await service.logged(({ msg }) => /cannot be used/.test(String(msg)));
}
