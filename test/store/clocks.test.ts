import t from "tap";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { nightly } from "../kit/nightly.ts";
import { makeNetwork } from "./faults/network.ts";
import { FaultyReplica, MAX_STALENESS } from "./faults/replica.ts";
import { makeStore, queryStatus, untilDeciding } from "./kit.ts";

const alice = { username: "alice", password: "alice password" };

t.test(
  "the end of all tokens reaches those of a clock that was just set ahead",
  nightly,
  async (t) => {
    const store = await makeStore(t, { maxStaleness: MAX_STALENESS }, await sharedServer());
    const { hosts } = await makeNetwork(t, 1, store.server.port);
    const [host] = hosts;
    if (host === undefined) throw new Error("no host");
    const set = new FaultyReplica(t, "set", host, store, store.server.url());
    await set.start();
    const other = await store.replica();
    const admin = await other.login();
    const user = { ...alice, role: "ReadOnly" };
    t.equal((await other.send("POST", "/api/users", user, admin)).status, 201);

    // The store does not learn of it, and it is less than makes a replica too old to decide.
    host.store.cut();
    set.setClock(1200);
    const tokens: string[] = [];
    await eventually("it issues no more tokens", async () => {
      const { status, body } = await set.gateway.send("POST", "/login", alice);
      if (status === 200) tokens.push(String(body.token));
      return status === 503;
    });
    const ended = await other.send("DELETE", "/api/users/alice/tokens", undefined, admin);
    t.equal(ended.status, 200);
    host.store.mend();
    await untilDeciding(set.gateway);
    for (const token of tokens) t.equal(await queryStatus(set.gateway, token), 401);
    const again = await set.gateway.login(alice.username, alice.password);
    t.equal(await queryStatus(other, again), 200, "a token of afterwards is good");
  },
);
