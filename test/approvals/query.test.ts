/** Approvals over `POST /query`: requested, decided on the command line, and used once. */
import t from "tap";
import { tokenOf } from "../journeys/staff.ts";
import { eventually } from "../kit/eventually.ts";
import { idIn, listed, openCareful, orders, removal, removeOne, step, stepsOf } from "./kit.ts";

const careful = await openCareful(t, { config: '[metrics]\nlisten = "127.0.0.1:0"\n' });
const { gateway, ask, run, bot, root, count } = careful;

t.test("a query that requires approval does not run, and the answer says what to do", async (t) => {
  const before = await count();
  const asked = await ask(bot, removal);
  const id = idIn(asked);
  t.match(asked.body, {
    status: "pending",
    code: "approval_required",
    approval: { id: /^[0-9a-f-]{36}$/, expires: /^\d{4}-\d\d-\d\dT[\d:.]+Z$/ },
  });
  t.equal(asked.headers.get("x-gatehouse-decision"), "deny");
  await gateway.service.logged(
    ({ approval, msg, status }) => approval === id && msg === "request" && status === 202,
  );
  t.equal(await count(), before);
  t.equal(idIn(await ask(bot, removal)), id, "the same request has the same approval");
  t.equal(idIn(await ask(bot, removal, id)), id, "still pending");
  const insert = { Insert: { ...orders, values: [{ id: 99, state: "x" }] } };
  t.equal((await ask(bot, insert)).status, 200);
  t.match(await ask(bot, { Preview: removal }), { status: 200, body: { affected: /\d/ } });
  t.equal((await ask(bot, { Preview: { Batch: [insert, removal] } })).status, 409, "no approval");
  t.equal((await ask(bot, { Preview: { Batch: [removal, removal] } })).status, 200);
  t.equal((await ask(root, removeOne(99))).status, 200, "other users need no approval");
  await run("deny", id);
});

t.test("an approval lets the same bytes run once", async (t) => {
  const query = removeOne(14);
  const id = idIn(await ask(bot, query));
  t.match(await run("list"), [{ id, state: "pending", user: "bot", via: "query" }]);
  t.match(await run("approve", id), { state: "approved", author: { kind: "cli" } });
  const mismatch = { status: 409, body: { code: "approval_mismatch" } };
  t.match(await ask(bot, removeOne(13), id), mismatch, "other bytes");
  t.match(await ask(bot, `${JSON.stringify(query)} `, id), mismatch, "one more byte");
  t.match(await ask(root, query, id), { status: 200 }, "not needed, so not used");
  await ask(root, { Insert: { ...orders, values: [{ id: 14, state: "new" }] } });
  const rows = await count();
  t.match(await ask(bot, query, id), { status: 200, body: { affected: 1 } });
  t.equal(await count(), rows - 1);
  t.match(await ask(bot, query, id), { status: 409, body: { code: "approval_used" } });
  await step(gateway, id, "approval_used");
  t.strictSame(
    stepsOf(gateway, id).filter((name) => name !== "request"),
    ["approval_asked", "approval_approved", "approval_used"],
  );
  const request = await gateway.service.logged(
    ({ approval, msg, status }) => approval === id && msg === "request" && status === 200,
  );
  t.match(request, { decision: "allow" });
  const approved = await step(gateway, id, "approval_approved");
  t.match(approved, { user: "bot", via: "query", author: { kind: "cli", name: /./ } });
});

t.test("a denied query returns the reason", async (t) => {
  const query = removeOne(12);
  const id = idIn(await ask(bot, query));
  t.match(await run("deny", id, "--reason", "not before the audit"), { state: "denied" });
  t.match(await ask(bot, query, id), {
    status: 403,
    body: { code: "approval_denied", message: /: not before the audit$/ },
  });
  await t.rejects(run("approve", id), /is already denied/);
  t.not(idIn(await ask(bot, query)), id, "a new approval can be requested");
});

t.test("a reason is one line, as in the console, and may be empty", async (t) => {
  for (const [number, reason, message] of [
    [14, "  ", /^Approval denied$/],
    [15, "not\u001b[2J\nyet", /: not \[2J yet$/],
  ] as const) {
    const id = idIn(await ask(bot, removeOne(number)));
    await run("deny", id, "--reason", reason);
    t.match(await ask(bot, removeOne(number), id), { body: { message } });
  }
  const id = idIn(await ask(bot, removeOne(16)));
  await t.rejects(run("deny", id, "--reason", "x".repeat(501)), /at most 500 characters/);
});

t.test("an approval is valid only for its requester", async (t) => {
  const query = removeOne(11);
  const id = idIn(await ask(bot, query));
  await run("approve", id);
  const other = await tokenOf(gateway, "wim");
  const entry = 'username = "wim"\ndatabase = "main"\nrole = "ReadWrite"';
  await gateway.edit((text) => text.replace(entry, `${entry}\nrequire_approval = ["DELETE"]`));
  const isInForce = async () => (await ask(other, removeOne(77))).status === 202;
  await eventually("the edit is in force", isInForce);
  const missing = { status: 404, body: { code: "approval_not_found" } };
  t.match(await ask(other, query, id), missing);
  for (const wrong of ["", "x", id.toUpperCase(), `${id},${id}`, id.replace(/^./, "g")]) {
    t.match(await ask(bot, query, wrong), missing, wrong);
  }
  t.match(await ask(bot, query, "0b9c3bd1-8f3f-4a57-9a3c-5f3d3a1c7a43"), missing);
  t.match(await ask(bot, query, id), { status: 200 });
});

t.test("a Batch needs one approval", async (t) => {
  const insert = { Insert: { ...orders, values: [{ id: 50, state: "b" }] } };
  const batch = { Batch: [insert, removeOne(50)] };
  const id = idIn(await ask(bot, batch));
  t.match(await run("show", id), {
    query: JSON.stringify(batch),
    operation_count: 2,
    preview: { reason: /only a single/ },
  });
  t.equal(idIn(await ask(bot, batch, id)), id);
  await run("approve", id);
  t.match(await ask(bot, batch, id), { status: 200, body: { data: { length: 2 } } });
});

t.test("permissions are checked before the approval", async (t) => {
  t.match(await ask(bot, { Delete: { ...orders, database: "other", where: null } }, "x"), {
    status: 403,
    body: { code: "role_insufficient" },
  });
  t.match(await ask(bot, '{"Delete":{}}', "x"), { status: 400 });
});

t.test("a user has at most twenty pending approvals", async (t) => {
  const isPending = ({ state, user }: Record<string, unknown>) =>
    state === "pending" && user === "bot";
  const pending = async () => (await listed(careful)).filter(isPending).length;
  for (let at = await pending(); at < 20; at += 1) idIn(await ask(bot, removeOne(1000 + at)));
  t.equal(await pending(), 20);
  const many = await ask(bot, removeOne(2000));
  t.match(many, { status: 429, body: { code: "too_many_approvals" } });
  const seconds = Number(many.headers.get("retry-after"));
  t.ok(seconds > 0 && seconds <= 600, "until the first one expires");
});
