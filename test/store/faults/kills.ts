import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "../../kit/eventually.ts";
import type { TestGateway } from "../../kit/gateway.ts";
import { makeStore, queryStatus, type Teardown } from "../kit.ts";

interface Killed {
  readonly kills: number;
  /** Acknowledged additions of a user with a grant. */
  readonly users: number;
  readonly revocations: number;
  /** Acknowledged changes that are missing. */
  readonly lost: readonly string[];
  /** Versions that the log lacks. */
  readonly gaps: number;
}

/** In each pair, one replica is killed at a time. */
const PAIRS = 2;
const RETRY_MS = 50;
const TOKENS_AT_ONCE = 16;

/**
 * Kills replicas with SIGKILL while clients add users with grants and revoke tokens, then checks
 * every acknowledged change.
 *
 * @param signal stops early
 */
export async function killReplicas(
  t: Teardown,
  kills: number,
  onKill: (kill: number) => void = () => {},
  signal?: AbortSignal,
): Promise<Killed> {
  const store = await makeStore(t, { maxStaleness: 2 });
  const replicas: TestGateway[] = [];
  for (let pair = 0; pair < PAIRS; pair++) {
    for (let own = 0; own < 2; own++) {
      replicas.push(await store.replica());
    }
  }
  const [first] = replicas;
  if (first === undefined) throw new Error("no replica");
  const admin = await first.login();
  const revoked: string[] = [];
  const granted: string[] = [];
  let isStopping = false;
  let count = 0;

  async function write(own: number): Promise<void> {
    while (!isStopping) {
      const replica = replicas[own % replicas.length];
      if (replica === undefined) return;
      const username = `user-${own}-${count++}`;
      const user = { username, password: `${username} password`, role: "ReadOnly" };
      try {
        const added = await replica.send("POST", "/api/users", user, admin);
        if (added.status !== 201) continue;
        granted.push(username);
        const token = await replica.login(username, user.password);
        const left = await replica.send("POST", "/logout", {}, token);
        if (left.status === 200) revoked.push(token);
      } catch {
        // The replica was killed, so the outcome is unknown.
        await delay(RETRY_MS);
      }
    }
  }

  let begun = 0;
  let done = 0;

  async function kill(pair: number): Promise<void> {
    for (let own = 0; begun < kills && signal?.aborted !== true; own++) {
      begun++;
      const before = granted.length;
      await eventually("a change is acknowledged", () => granted.length > before);
      const at = 2 * pair + (own % 2);
      const victim = replicas[at];
      await victim?.service.stop("SIGKILL");
      // It is dead, so writers need not wait for its lease.
      await store.sql(
        `delete from gatehouse.leases where name like '%:${victim?.service.child.pid}'`,
      );
      replicas[at] = await store.replica();
      onKill(++done);
    }
  }

  const writers = replicas.map((_, own) => write(own));
  await Promise.all(Array.from({ length: PAIRS }, (_, pair) => kill(pair)));
  isStopping = true;
  await Promise.all(writers);

  const known: { username: string; access: object[] }[] = JSON.parse(
    await store.good(["user", "list", "--json"]),
  );
  const granting = known.filter(({ access }) => access.length === 1);
  const names = new Set(granting.map(({ username }) => username));
  const lost = granted.filter((name) => !names.has(name));
  for (let at = 0; at < revoked.length; at += TOKENS_AT_ONCE) {
    const some = revoked.slice(at, at + TOKENS_AT_ONCE);
    for (const replica of replicas) {
      const found = await Promise.all(some.map((token) => queryStatus(replica, token)));
      lost.push(...found.filter((status) => status !== 401).map(() => "a revocation"));
    }
  }
  const [log] = await store.sql("select max(version) + 1 - count(*) as gaps from gatehouse.log");
  return {
    kills: done,
    users: granted.length,
    revocations: revoked.length,
    lost,
    gaps: Number(log?.gaps),
  };
}
