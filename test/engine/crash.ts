import type { Test } from "tap";
import { eventually } from "../kit/eventually.ts";
import { type Answer, createTable, insert, query, selectAll } from "./kit.ts";

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
    else t.match(body, { code: "database_unavailable" });
    if (status !== 200 && !/not known/.test(body.message ?? "")) t.notOk(kept.has(at));
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
