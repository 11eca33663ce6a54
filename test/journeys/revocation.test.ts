import { readFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import t, { type Test } from "tap";
import { CONFIRM_AFTER_MS } from "../../src/core/http/reloads.ts";
import { openGatewaySetup } from "../gateway/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { insert, queryHeaders } from "../kit/queries.ts";
import { runWarm } from "../kit/warm-command.ts";
import { Wire, wireRequest } from "../kit/wire.ts";
import { type Loss, type Way, ways } from "./losses.ts";
import {
  cheapHash,
  editInForce,
  insertRefusal,
  openStaffed,
  passwordOf,
  putInForce,
  soon,
  succeed,
  textOf,
  tokenOf,
  untilInForce,
} from "./staff.ts";
import { KeptConnection } from "./supervised.ts";

async function checkLoss(t: Test, way: Way, loss: Loss): Promise<void> {
  const { gateway, token } = loss;
  const kept = new KeptConnection(gateway.url);
  t.teardown(() => kept.close());
  t.equal((await kept.send("POST", "/query", token, insert)).status, 200);
  await way.act(loss);
  await soon(t, "the token is refused on the connection that was open", async () => {
    const { code, isReused } = await kept.send("POST", "/query", token, insert);
    if (!isReused) throw new Error("the connection was not kept");
    return code === way.code;
  });
  t.equal(await insertRefusal(gateway, token), way.code, "and on a new one");
}

/** @param more a line in the record of each user */
async function loseAll(t: Test, ways: readonly Way[], more = ""): Promise<void> {
  const names = ways.map((_, number) => `user-${number}`);
  const grants = ["root * Owner", ...names.map((name) => `${name} main ReadWrite`)];
  const { gateway } = await openStaffed(t, grants);
  await putInForce(gateway, textOf(gateway).replaceAll(/^password_hash = .*\n/gm, `$&${more}`));
  const original = textOf(gateway);
  const root = await tokenOf(gateway, "root");
  const tokens = await Promise.all(names.map((name) => tokenOf(gateway, name)));
  for (const [number, way] of ways.entries()) {
    const loss = { gateway, name: names[number] ?? "", token: tokens[number] ?? "", root };
    await t.test(way.how, (t) => checkLoss(t, way, loss));
  }
  await gateway.service.stop();

  const { gateway: restarted } = await openGatewaySetup(t, { home: gateway.home });
  for (const [number, { how, code }] of ways.entries()) {
    t.equal(await insertRefusal(restarted, tokens[number] ?? ""), code, `after a restart: ${how}`);
  }
  await putInForce(restarted, original);
  for (const [number, { how, afterRestore }] of ways.entries()) {
    if (afterRestore === undefined) continue;
    const refusal = await insertRefusal(restarted, tokens[number] ?? "");
    t.equal(refusal, afterRestore, `with an old access file put back: ${how}`);
  }
}

t.test("a lost right is refused at once, after a restart, and permanently", async (t) => {
  await loseAll(t, ways);
});

t.test("so are tokens of users whose tokens_valid_after is still to come", async (t) => {
  const ahead = `tokens_valid_after = ${Math.ceil(Date.now() / 1000) + 3600}\n`;
  await loseAll(t, ways, ahead);
});

t.test("a gateway that stops just after an edit by hand still ends the tokens", async (t) => {
  const { gateway } = await openStaffed(t, ["root * Owner", "bob main ReadWrite"]);
  const token = await tokenOf(gateway, "bob");
  const original = textOf(gateway);
  await gateway.edit((text) => text.replaceAll(/\[\[\w+]]\nusername = "bob"\n(?:.+\n)*\n?/g, ""));
  await soon(t, "it is gone", async () => (await insertRefusal(gateway, token)) === "user_gone");
  await gateway.service.stop();
  const { gateway: restarted } = await openGatewaySetup(t, { home: gateway.home });
  await putInForce(restarted, original);
  t.equal(await insertRefusal(restarted, token), "token_revoked");
});

const writers = ["bob", "cora", "dan"].map((name) => `${name} main ReadWrite`);
const shared = openStaffed(t, ["root * Owner", ...writers]);

t.test("a user that is removed and created again cannot use earlier tokens", async (t) => {
  const { gateway } = await shared;
  const root = await tokenOf(gateway, "root");
  const run = async (flags: string) => {
    const { code, stdout, stderr } = await runWarm(gateway.home, flags.split(" "));
    if (code !== 0) throw new Error(`${flags}: ${stderr}`);
    return stdout.trim();
  };
  const dead: string[] = [await tokenOf(gateway, "bob")];
  const checkDead = async (after: string) => {
    for (const token of dead) t.equal(await insertRefusal(gateway, token), "token_revoked", after);
  };
  const account = { username: "bob", password: passwordOf("bob"), role: "ReadWrite" };

  await succeed(gateway.send("DELETE", "/api/users/bob", undefined, root));
  t.equal((await gateway.send("POST", "/api/users", account, root)).status, 201);
  await checkDead("the API made it again, with the same password");
  const second = await tokenOf(gateway, "bob");
  t.equal(await insertRefusal(gateway, second), undefined, "a new token works at once");
  dead.push(second);

  await run("user remove bob");
  await run("user add bob --no-password");
  await run("access grant bob main ReadWrite");
  await untilInForce(gateway);
  await checkDead("the command line made it again, without a password");
  const machine = await run("token issue bob");
  t.equal(await insertRefusal(gateway, machine), undefined);
  dead.push(machine);

  await succeed(gateway.send("DELETE", "/api/users/bob", undefined, root));
  await editInForce(
    gateway,
    (text) =>
      `${text}\n[[users]]\nusername = "bob"\n\n[[acl]]\nusername = "bob"\ndatabase = "main"\nrole = "ReadWrite"\n`,
  );
  await checkDead("an operator made it again by hand, without a password");

  const another = await run("token issue bob");
  await eventually("it works", async () => (await insertRefusal(gateway, another)) === undefined);
  dead.push(another);
  const revocations = () => readFileSync(path.join(gateway.home, "revocations"), "utf8");
  const known = revocations();
  await gateway.edit((text) => text.replace(/\[\[users]]\nusername = "bob"\n/, ""));
  await eventually(
    "it is gone",
    async () => (await insertRefusal(gateway, another)) === "user_gone",
  );
  await eventually("that is on disk", () => revocations() !== known);
  await editInForce(gateway, (text) => `${text}\n[[users]]\nusername = "bob"\n`);
  await checkDead("it was taken out of the file and put back");
});

t.test("an edit by hand ends tokens permanently, although earlier ones were revoked", async (t) => {
  const { gateway } = await shared;
  const root = await tokenOf(gateway, "root");
  const ahead = `tokens_valid_after = ${Math.ceil(Date.now() / 1000) + 3600}\n`;
  await putInForce(gateway, textOf(gateway).replace('username = "dan"\n', `$&${ahead}`));
  const names = ["cora", "dan"];
  for (const name of names) {
    await succeed(gateway.send("DELETE", `/api/users/${name}/tokens`, undefined, root));
  }
  // Revocations of this moment count as part of an edit.
  await delay(2 * CONFIRM_AFTER_MS + 500);
  const tokens = await Promise.all(names.map((name) => tokenOf(gateway, name)));
  const original = textOf(gateway);
  const hash = await cheapHash("an entirely new one");
  await gateway.edit((text) =>
    text
      .replace(/(username = "cora"\npassword_hash = ").+"/, (_, start) => `${start}${hash}"`)
      .replace('username = "dan"\n', "$&disabled = true\n"),
  );
  const file = path.join(gateway.home, "revocations");
  await eventually("they are on disk", () =>
    names.every((name) => readFileSync(file, "utf8").split(`"${name}"`).length > 2),
  );
  await putInForce(gateway, original);
  for (const token of tokens) t.equal(await insertRefusal(gateway, token), "token_revoked");
});

t.test("revoking twice within a second revokes the token in between", async (t) => {
  const { gateway } = await shared;
  for (let round = 0; round < 2; round++) {
    const token = await tokenOf(gateway, "cora");
    await succeed(gateway.send("DELETE", "/api/users/cora/tokens", "", token));
    t.equal(await insertRefusal(gateway, token), "token_revoked");
  }
});

t.test("a request whose token is revoked during the upload is refused", async (t) => {
  const { gateway, upstream } = await shared;
  const token = await tokenOf(gateway, "dan");
  const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: {} };
  const { host } = new URL(gateway.url);
  const wires: { wire: Wire; rest: string }[] = [];
  for (const [route, body] of [
    ["/query", insert],
    ["/mcp", JSON.stringify(call)],
  ] as const) {
    const wire = await Wire.open(gateway.url, t);
    const headers = { Host: host, ...queryHeaders(token), Expect: "100-continue" };
    const request = wireRequest(`POST ${route}`, headers, body);
    wire.send(request.slice(0, -5));
    await wire.until(/100 Continue/);
    wires.push({ wire, rest: request.slice(-5) });
  }
  await succeed(gateway.send("POST", "/logout", undefined, token));
  upstream.take();
  for (const { wire, rest } of wires) {
    wire.send(rest);
    t.match(await wire.until(/"code":"\w+"/), /401 .*"code":"token_revoked"/s);
  }
  t.strictSame(upstream.take(), []);
});
