import t from "tap";
import { Fleet, SteadyLoad } from "../deploy/fleet.ts";
import { findProgram } from "../deploy/programs.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { ADMIN_PASSWORD } from "../kit/gateway.ts";
import { nightly } from "../kit/nightly.ts";
import { runCommand } from "../kit/process.ts";
import { makeStore, queryStatus } from "./kit.ts";
import { makeLaterVersion } from "./versions.ts";

/** Adds users through the front, one after the other, until it is stopped. */
class Writer {
  readonly #fleet: Fleet;
  readonly #writing: Promise<void>;
  #isOver = false;
  readonly added: string[] = [];
  readonly refused: unknown[] = [];

  constructor(fleet: Fleet) {
    this.#fleet = fleet;
    this.#writing = this.#write();
  }

  async #write(): Promise<void> {
    for (let count = 0; !this.#isOver; count++) {
      const username = `user-${count}`;
      const user = { username, password: `${username} password`, role: "ReadOnly" };
      const answer = await this.#fleet.client.send("POST", "/api/users", user);
      if (answer.status === 201) this.added.push(username);
      else this.refused.push(answer);
    }
  }

  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#writing;
  }
}

t.test("a replica that meets a form of the log beyond its own decides nothing more", async (t) => {
  const store = await makeStore(t, { maxStaleness: 2 }, await sharedServer());
  const replica = await store.replica();
  const token = await replica.login();
  t.equal(await queryStatus(replica, token), 200);
  await store.sql("update gatehouse.head set form = form + 1");
  await eventually("it refuses", async () => (await queryStatus(replica, token)) === 503);
  t.match(await replica.request("/readyz"), {
    status: 503,
    body: { code: "store_unreachable", store: "unreachable" },
  });
  t.ok(await replica.service.logged(({ reason }) => /form \d+.*upgrade it/.test(String(reason))));
});

const haproxy = findProgram("haproxy");

if (haproxy !== undefined) {
  t.test("replicas of two versions serve side by side while one takes over", nightly, async (t) => {
    const fleet = await Fleet.start(t, haproxy);
    const { store, client } = fleet;
    const later = makeLaterVersion(t);
    const status = async () => JSON.parse(await store.good(["store", "status", "--json"]));
    const forms = async () =>
      (await store.sql("select form from gatehouse.leases order by form")).map(({ form }) => form);
    const { form, readableForm: known, migrations } = await status();
    const load = new SteadyLoad(client);
    const writer = new Writer(fleet);

    await load.goOn();
    const before = await runCommand(store.home, ["store", "status"], { root: later });
    t.match(before, { code: 1, stderr: /has tables of an older version: make them with/ });
    await store.good(["store", "init"], "", later);
    const [taken] = await store.sql("select max(number) as number from gatehouse.migrations");
    t.equal(taken?.number, migrations + 1, "the tables are the later version's");
    await load.goOn();

    const first = await fleet.restart(0, later);
    t.strictSame(await forms(), [known, known, known + 1]);
    const newForm = await first.send("DELETE", "/api/users/admin/tokens", {}, client.token);
    t.match(newForm, { status: 409, body: { code: "store_form_unknown" } });
    t.match(await store.good(["store", "status"]), /^REPLICA +SINCE +FORM +APPLIED/m);
    await load.goOn();
    // One back, and on again.
    await fleet.restart(0);
    t.strictSame(await forms(), [known, known, known]);
    for (const index of fleet.replicas.keys()) {
      await fleet.restart(index, later);
      await load.goOn();
    }
    await load.stop();
    await writer.stop();
    t.strictSame(load.failed, [], `of ${load.count} queries none has failed`);
    t.strictSame(writer.refused, [], `nor has a change of ${writer.added.length}`);
    t.ok(writer.added.length > 0);
    const users: { username: string; access: unknown[] }[] = JSON.parse(
      await store.good(["user", "list", "--json"]),
    );
    const held = users.filter(({ access }) => access.length === 1);
    const names = new Set(held.map(({ username }) => username));
    t.strictSame(
      writer.added.filter((name) => !names.has(name)),
      [],
      "each grant that was acknowledged is there",
    );

    const [head] = await store.sql("select form from gatehouse.head");
    t.equal(head?.form, form, "nothing was written that the version before cannot read");
    const [replica] = fleet.replicas;
    const ended = await replica?.send("DELETE", "/api/users/admin/tokens", {}, client.token);
    t.equal(ended?.status, 200, "a new form is written once all know it");
    await t.rejects(store.replica(), /is of form \d+, and this version of Gatehouse reads up to/);
    t.match(await status(), { form: known + 1, readableForm: known });
    t.ok(await replica?.login("admin", ADMIN_PASSWORD));
  });
}
