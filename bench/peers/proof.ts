import type { System } from "./system.ts";
import { reader, type World, writers } from "./world.ts";

const select = (database: string) =>
  JSON.stringify({ Select: { database, from: "users", columns: ["*"] } });
/** A write, which a reader may not send. */
export const insert: string = JSON.stringify({
  Insert: { database: "main", table: "users", values: [{ id: 1 }] },
});

async function statusOf(system: System, token: string | undefined, body: string): Promise<number> {
  const headers = new Headers({ "content-type": "application/json" });
  if (token !== undefined) headers.set("authorization", `Bearer ${token}`);
  const url = `http://127.0.0.1:${system.port}/query`;
  const answer = await fetch(url, { method: "POST", headers, body });
  await answer.arrayBuffer();
  return answer.status;
}

/**
 * Proves that a system does what it is measured for: it forwards allowed requests, and refuses a missing, a
 * forged and an expired token. If it inspects queries, it also refuses a write by a reader and a database
 * without a grant.
 *
 * @throws Error that names what it forwarded
 */
export async function prove(system: System, world: World): Promise<void> {
  const { algorithm } = system;
  if (algorithm === undefined) return;
  const [writer = ""] = writers;
  const good = await world.token(writer, algorithm);
  const readOnly = await world.token(reader, algorithm);
  const cases = [
    ["a write by a writer", good, insert, 200],
    ["a read by a reader", readOnly, select("main"), 200],
    ["no token", undefined, select("main"), 401],
    ["a forged token", await world.forgedToken(), select("main"), 401],
    ["a changed signature", `${good.slice(0, -8)}AAAAAAAA`, select("main"), 401],
    ["an expired token", await world.token(writer, algorithm, -60), select("main"), 401],
  ] as const;
  const ofQueries = [
    ["a write by a reader", readOnly, insert, 403],
    ["a database without a grant", good, select("other"), 403],
  ] as const;
  const asked = system.checks === "token" ? cases : [...cases, ...ofQueries];
  for (const [what, token, body, expected] of asked) {
    const status = await statusOf(system, token, body);
    // Some peers respond with 403 to an invalid token.
    const isRefusal = expected === 401 && status === 403;
    if (status !== expected && !isRefusal) {
      throw new Error(`${system.name}: ${what} was answered with ${status}, not ${expected}`);
    }
  }
}
