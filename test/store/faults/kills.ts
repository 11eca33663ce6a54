import { setTimeout as delay } from "node:timers/promises";
import { eventually } from "../../kit/eventually.ts";
import type { TestGateway } from "../../kit/gateway.ts";
import { makeStore, queryStatus } from "../kit.ts";
import { startedAtLast } from "./replica.ts";

/** What kills of replicas have come to. */
export interface Killed {
  readonly kills: number;
  /** Users that were added, with a grant, and tokens that were revoked, each acknowledged. */
  readonly users: number;
  readonly revocations: number;
  /** What was acknowledged and is not there. */
  readonly lost: readonly string[];
  /** Versions that the log lacks. */
  readonly gaps: number;
}

/** Pairs of replicas, of each of which one is killed at a time. */
const PAIRS = 2;
/** Milliseconds until a client tries again. */
const PAUSE_MS = 50;
/** Looks at this many tokens at a time. */
const LOOKS = 16;

/**
 * Kills one of two replicas after the other, at once (SIGKILL), in two pairs, while clients add users
 * with grants and revoke tokens at all; then looks for each change that was acknowledged.
 *
 * @param onKill told of each kill
 * @param signal ends it early
 */
export async function killReplicas(
  t: { teardown(work: () => unknown): void },
  kills: number,
  onKill: (kill: number) => void = () => {},
  signal?: AbortSignal,
): Promise<Killed> {
  const store = await makeStore(t, { maxStaleness: 2 });
  const replicas: TestGateway[] = [];
  for (let pair = 0; pair < PAIRS; pair++) {
    for (let own = 0; own < 2; own++) {
      replicas.push(await startedAtLast(() => store.replica()));
    }
  }
  const [first] = replicas;
  if (first === undefined) throw new Error("no replica");
  const admin = await first.login();
  const revoked: string[] = [];
  const granted: string[] = [];
  let isOver = false;
  let count = 0;

  /** Adds users, grants and revocations at whatever replica takes them. */
  async function write(own: number): Promise<void> {
    while (!isOver) {
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
        // The replica was killed: nobody was told what has become of the request.
        await delay(PAUSE_MS);
      }
    }
  }

  let begun = 0;
  let done = 0;

  /** Kills the replicas of a pair in turn. */
  async function kill(pair: number): Promise<void> {
    for (let own = 0; begun < kills && signal?.aborted !== true; own++) {
      begun++;
      const before = granted.length;
      await eventually("somebody is served", () => granted.length > before);
      const at = 2 * pair + (own % 2);
      const victim = replicas[at];
      await victim?.service.stop("SIGKILL");
      // Known to be dead: nobody has to wait until its lease has run out.
      await store.sql(
        `delete from gatehouse.leases where name like '%:${victim?.service.child.pid}'`,
      );
      replicas[at] = await startedAtLast(() => store.replica());
      onKill(++done);
    }
  }

  const writers = replicas.map((_, own) => write(own));
  await Promise.all(Array.from({ length: PAIRS }, (_, pair) => kill(pair)));
  isOver = true;
  await Promise.all(writers);

  const known: { username: string; access: object[] }[] = JSON.parse(
    await store.good(["user", "list", "--json"]),
  );
  const names = new Set(
    known.filter(({ access }) => access.length === 1).map((one) => one.username),
  );
  const lost = granted.filter((name) => !names.has(name));
  for (let at = 0; at < revoked.length; at += LOOKS) {
    const some = revoked.slice(at, at + LOOKS);
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
