/** Approvals become void when the rights that they depend on change. */
import { readFile } from "node:fs/promises";
import { DatabaseSync } from "node:sqlite";
import { mock } from "node:test";
import t from "tap";
import { epochSeconds } from "../../src/core/base/clock.ts";
import { openApprovalsIn } from "../../src/features/approvals/approval-file.ts";
import { eventually } from "../kit/eventually.ts";
import { careful, idIn, openCareful, orders, removeOne, step } from "./kit.ts";

const filter = 'row_filter = [{ column = "state", cmp = "=", value = "@state" }]';
const attributes = 'username = "bot"\nattributes = { state = "old" }';
const { gateway, ask, run, bot, root, count } = await openCareful(t, {
  more: careful(`${filter}\napprovers = ["dave", "bot"]`),
});
await gateway.edit((text) => text.replace('username = "bot"', attributes));
const isInForce = async () => (await ask(bot, removeOne(99))).status === 202;
await eventually("the attribute is in force", isInForce);

async function edit(change: (text: string) => string): Promise<void> {
  const version = async () => {
    const { access } = (await gateway.request("/readyz")).body;
    return JSON.stringify(access ?? (await gateway.request("/readyz")).text);
  };
  const before = await version();
  await gateway.edit(change);
  await eventually("the edit is in force", async () => (await version()) !== before);
}

async function approveAs(name: string, id: string): Promise<void> {
  const store = await openApprovalsIn(gateway.home, 30);
  const author = { kind: "console", name } as const;
  await store.decide(id, { state: "approved", author, wait: 600_000 });
  await store.close();
}

/** A revocation covers all that was decided up to the end of a second. */
async function waitForRevocation(): Promise<void> {
  const second = epochSeconds() + 1;
  await eventually("the revocation has ended", () => epochSeconds() > second);
}

const isVoid = { status: 409, body: { code: "approval_void" } };

t.test("a preview has only rows that the requester may change", async (t) => {
  const everything = { Delete: { ...orders, where: null } };
  const id = idIn(await ask(bot, everything));
  const shown = await run("show", id);
  t.match(shown, { query: JSON.stringify(everything), preview: { affected: 12 } });
  await run("deny", id);
});

t.test("a changed attribute voids an approval", async (t) => {
  const query = removeOne(13);
  const id = idIn(await ask(bot, query));
  await run("approve", id);
  await edit((text) => text.replace('state = "old"', 'state = "new"'));
  t.match(await ask(bot, query, id), isVoid);
  t.match(await ask(bot, query, id), isVoid, "permanently");
  const reason = /grants have changed/;
  t.match(await step(gateway, id, "approval_void"), { reason });
  t.match(await run("show", id), { state: "void", reason });
  await edit((text) => text.replace('state = "new"', 'state = "old"'));
  t.match(await ask(bot, query, id), isVoid);
  t.not(idIn(await ask(bot, query)), id);
});

t.test("a changed entry voids a pending approval", async (t) => {
  const query = removeOne(1);
  const id = idIn(await ask(bot, query));
  await edit((text) => text.replace('approvers = ["dave", "bot"]', 'approvers = ["bot", "dave"]'));
  t.match(await ask(bot, query, id), isVoid);
  t.not(idIn(await ask(bot, query)), id);
});

t.test("the approvals of thousands of users end in one transaction", async (t) => {
  const id = idIn(await ask(bot, removeOne(1)));
  const users = Array.from({ length: 3000 }, (_, number) => `user-${number}`);
  const store = await openApprovalsIn(gateway.home, 30);
  const { mock: exec } = mock.method(DatabaseSync.prototype, "exec");
  await store.invalidateAll(users, "no one's");
  await store.invalidateAll([...users, "bot"], "removed");
  exec.restore();
  await store.close();
  t.equal(exec.calls.filter(({ arguments: [sql] }) => sql.startsWith("BEGIN")).length, 2);
  t.match(await step(gateway, id, "approval_void"), { reason: "removed" });
});

t.test("approvals of a user whose tokens were all revoked are void", async (t) => {
  const evePassword = "eve password";
  const user = { username: "eve", password: evePassword, role: "ReadOnly", database: "other" };
  t.equal((await gateway.send("POST", "/api/users", user, root)).status, 201);
  await edit((text) => `${text}\n${careful("", "eve")}`);
  const query = removeOne(20);
  const first = idIn(await ask(await gateway.login("eve", evePassword), query));
  await run("approve", first);
  const kept = idIn(await ask(bot, removeOne(22)));
  await run("approve", kept);
  const renamed = attributes.replace("bot", "tob");
  await edit((text) => text.replace(attributes, renamed));
  await edit((text) => text.replace(renamed, attributes));
  const text = await readFile(gateway.accessFile, "utf8");
  t.equal((await gateway.send("DELETE", "/api/users/eve", undefined, root)).status, 200);
  t.match(await step(gateway, first, "approval_void"), { reason: "the user was removed" });
  t.match(await ask(bot, removeOne(22), kept), { status: 200 }, "of a user who is back at once");
  await edit(() => text);
  const second = await gateway.login("eve", evePassword);
  t.match(await ask(second, query, first), isVoid, "of an earlier user of that name");
  const again = idIn(await ask(second, query));
  await run("approve", again);
  t.match(await ask(await gateway.login("eve", evePassword), query, again), { status: 200 });
  const pending = idIn(await ask(second, removeOne(21)));
  const changed = { old_password: evePassword, new_password: "another long password" };
  const { status } = await gateway.send("PUT", "/api/users/eve/password", changed, second);
  t.equal(status, 200);
  const third = await gateway.login("eve", changed.new_password);
  t.match(await ask(third, removeOne(21), pending), isVoid, "of an earlier password");
  t.not(idIn(await ask(third, removeOne(21))), pending);
});

t.test("a lost right denies the query and does not use the approval", async (t) => {
  const query = removeOne(2);
  const id = idIn(await ask(bot, query));
  await run("approve", id);
  const demote = (from: string, to: string) => (text: string) =>
    text.replace(`role = "${from}"\nrequire_approval`, `role = "${to}"\nrequire_approval`);
  await edit(demote("ReadWrite", "ReadOnly"));
  t.match(await ask(bot, query, id), { status: 403, body: { code: "role_insufficient" } });
  await edit(demote("ReadOnly", "ReadWrite"));
  t.match(await ask(bot, query, id), { status: 200 }, "the approval was not used");
});

t.test("an approval is void if its approver is the requester or was disabled", async (t) => {
  const [lost, own] = [removeOne(3), removeOne(4)];
  const [byDave, byBot] = [idIn(await ask(bot, lost)), idIn(await ask(bot, own))];
  await approveAs("dave", byDave);
  await approveAs("bot", byBot);
  t.match(await ask(bot, own, byBot), isVoid, "the requester, although the entry names it");
  await edit((text) => text.replace('username = "dave"', 'username = "dave"\ndisabled = true'));
  t.match(await ask(bot, lost, byDave), isVoid);
  await edit((text) => text.replace("\ndisabled = true", ""));
  await waitForRevocation();
  const again = idIn(await ask(bot, lost));
  await approveAs("dave", again);
  t.match(await ask(bot, lost, again), { status: 200 });
  t.equal((await ask(root, removeOne(3))).status, 200);
  t.equal(await count(), 13);
});

t.test("an approval is void once its approver is recorded as the same person", async (t) => {
  const query = removeOne(9);
  const id = idIn(await ask(bot, query));
  await approveAs("dave", id);
  await edit((text) => text.replace('username = "dave"', 'username = "dave"\nsame_as = "bot"'));
  t.match(await ask(bot, query, id), isVoid);
  await edit((text) => text.replace('\nsame_as = "bot"', ""));
});

t.test("an approver must be named by the entry and by the boundary", async (t) => {
  const boundary = (approvers: string) =>
    `\n[[boundaries]]\nvia = "query"\nusername = "bot"\nrequire_approval = ["DELETE"]\napprovers = ${approvers}\n`;
  const query = removeOne(5);
  const isUsedAfter = async (approver: string) => {
    const id = idIn(await ask(bot, query));
    await approveAs(approver, id);
    return ask(bot, query, id);
  };
  await edit((text) => text + boundary('["wim"]'));
  t.match(await isUsedAfter("dave"), isVoid, "not by the boundary");
  t.match(await isUsedAfter("wim"), isVoid, "not by the entry");
  await edit((text) => text.replace(boundary('["wim"]'), boundary('["wim", "dave"]')));
  t.match(await isUsedAfter("dave"), { status: 200 });
  await edit((text) => text.replace(boundary('["wim", "dave"]'), ""));
});

t.test("an approval is used up once", async (t) => {
  const id = idIn(await ask(bot, removeOne(5)));
  await approveAs("dave", id);
  const store = await openApprovalsIn(gateway.home, 30);
  t.ok(await store.consume(id, "first"));
  t.notOk(await store.consume(id, "second"));
  await store.close();
});

t.test("an approver may be a group, of which the author must still be a member", async (t) => {
  await edit((text) =>
    text
      .replace('approvers = ["bot", "dave"]', 'approvers = ["group:leads"]')
      .concat('\n[[groups]]\nname = "leads"\nmembers = ["wim"]\n'),
  );
  const [byDave, byWim, left] = [removeOne(6), removeOne(7), removeOne(8)];
  const ids = await Promise.all(
    [byDave, byWim, left].map(async (one) => idIn(await ask(bot, one))),
  );
  const [first = "", second = "", third = ""] = ids;
  await approveAs("dave", first);
  t.match(await ask(bot, byDave, first), isVoid, "who may grant, and is in no group");
  await approveAs("wim", second);
  t.match(await ask(bot, byWim, second), { status: 200 });
  await approveAs("wim", third);
  await edit((text) => text.replace('members = ["wim"]', 'members = ["dave"]'));
  t.match(await ask(bot, left, third), isVoid);
});

t.test("an approval is void once all tokens of its approver were revoked", async (t) => {
  await edit((text) => text.replace('approvers = ["group:leads"]', 'approvers = ["eve"]'));
  const user = { username: "eve", password: "eve password", role: "DbAdmin", database: "main" };
  const remove = () => gateway.send("DELETE", "/api/users/eve", undefined, root);
  const add = () => gateway.send("POST", "/api/users", user, root);
  t.equal((await remove()).status, 200);
  t.equal((await add()).status, 201);
  await waitForRevocation();
  const query = removeOne(10);
  const first = idIn(await ask(bot, query));
  await approveAs("eve", first);
  t.equal((await remove()).status, 200);
  t.equal((await add()).status, 201);
  t.match(await ask(bot, query, first), isVoid, "of an earlier approver of that name");
  t.match(await step(gateway, first, "approval_void"), { reason: /tokens of the approver/ });
  await waitForRevocation();
  const second = idIn(await ask(bot, query));
  await approveAs("eve", second);
  const tokens = "/api/users/eve/tokens";
  t.equal((await gateway.send("DELETE", tokens, undefined, root)).status, 200);
  t.match(await ask(bot, query, second), isVoid);
  const byOperator = idIn(await ask(bot, query));
  await run("approve", byOperator);
  t.equal((await gateway.send("DELETE", "/api/users/root/tokens", undefined, root)).status, 200);
  t.match(await ask(bot, query, byOperator), { status: 200 }, "an operator has no tokens");
});

t.test("a query that no longer requires approval runs", async (t) => {
  const query = removeOne(5);
  const id = idIn(await ask(bot, query));
  await edit((text) => text.replace('require_approval = ["DELETE"]\n', ""));
  t.match(await ask(bot, query, id), { status: 200 });
});
