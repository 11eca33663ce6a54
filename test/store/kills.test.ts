import t from "tap";
import { eventually } from "../kit/eventually.ts";
import type { TestGateway } from "../kit/gateway.ts";
import { makeStore, queryStatus } from "./kit.ts";

/** Kills of replicas; before each, at least one user is made. */
const KILLS = 12;

t.test("kills of replicas under writes lose nothing that was acknowledged", async (t) => {
  const store = await makeStore(t, { maxStaleness: 2 });
  const replicas: TestGateway[] = [await store.replica(), await store.replica()];
  const admin = await (replicas[0] as TestGateway).login();
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
      }
    }
  }

  const writers = [0, 1, 0, 1].map(write);
  for (let kill = 0; kill < KILLS; kill++) {
    const before = granted.length;
    await eventually("somebody is served", () => granted.length > before);
    const victim = replicas[kill % 2];
    await victim?.service.stop("SIGKILL");
    // Known to be dead: nobody has to wait until its lease has run out.
    await store.sql(
      `delete from gatehouse.leases where name like '%:${victim?.service.child.pid}'`,
    );
    replicas[kill % 2] = await store.replica();
  }
  isOver = true;
  await Promise.all(writers);

  t.ok(granted.length >= KILLS, `${granted.length} users`);
  const known: { username: string; access: object[] }[] = JSON.parse(
    await store.good(["user", "list", "--json"]),
  );
  const names = new Set(
    known.filter(({ access }) => access.length === 1).map((one) => one.username),
  );
  t.strictSame(
    granted.filter((name) => !names.has(name)),
    [],
  );
  for (const token of revoked) {
    for (const replica of replicas) t.equal(await queryStatus(replica, token), 401);
  }
  const [gaps] = await store.sql("select max(version) + 1 - count(*) as gaps from gatehouse.log");
  t.equal(Number(gaps?.gaps), 0, "the log has no gaps");
});
