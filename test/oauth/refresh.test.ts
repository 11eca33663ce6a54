import { mock } from "node:test";
import t, { type Test } from "tap";
import { epochSeconds } from "../../src/clock.ts";
import { Refusal } from "../../src/refusal.ts";
import { grant, refusedBy } from "../access/kit.ts";
import { eventually } from "../kit/eventually.ts";
import { authorize, exchange, obtainTokens, refresh } from "./flow.ts";
import { defaultUsers, openSetting, postForm, registered, userWith } from "./kit.ts";

t.test("a refresh token is good once, for the next one and an access token", async (t) => {
  const setting = await openSetting(t);
  const first = await obtainTokens(setting, { database: "main", reach: "read" });
  const second = await refresh(setting, first.clientId, first.refreshToken);
  t.match(second, { status: 200, body: { access_token: String, refresh_token: String } });
  t.not(second.body.refresh_token, first.refreshToken);
  const token = await setting.server.verify(String(second.body.access_token));
  t.match(token, { username: "alice", database: "main", readOnly: true });
});

/** Lets time pass by hand until the test is over. */
function holdTime(t: Test): (seconds: number) => void {
  mock.timers.enable({ apis: ["Date"], now: Date.now() });
  t.teardown(() => mock.timers.reset());
  return (seconds) => mock.timers.tick(seconds * 1000);
}

t.test("a refresh token that is shown again later ends the whole line", async (t) => {
  const pass = holdTime(t);
  const setting = await openSetting(t);
  const first = await obtainTokens(setting);
  const second = await refresh(setting, first.clientId, first.refreshToken);
  pass(11);
  const stolen = await refresh(setting, first.clientId, first.refreshToken);
  t.equal(stolen.body.error, "invalid_grant");
  t.ok(setting.events.some(({ name }) => name === "oauth_replay"));
  const next = await refresh(setting, first.clientId, String(second.body.refresh_token));
  t.equal(next.body.error, "invalid_grant");
  for (const token of [first.accessToken, String(second.body.access_token)]) {
    t.equal((await refusedBy(setting.server.verify(token))).code, "token_revoked");
  }
});

t.test("a refresh token serves all that its client asks for at one moment", async (t) => {
  const pass = holdTime(t);
  const setting = await openSetting(t);
  const { clientId, refreshToken } = await obtainTokens(setting);
  const other = await registered(setting);
  const again = () => refresh(setting, clientId, refreshToken);
  const answers = await Promise.all([again(), again(), again(), again(), again()]);
  pass(9);
  answers.push(await again());
  t.strictSame(new Set(answers.map(({ status }) => status)), new Set([200]));
  const lines = answers.map(({ body }) => String(body.refresh_token));
  t.equal(new Set(lines).size, answers.length);
  t.equal((await refresh(setting, other, refreshToken)).body.error, "invalid_grant");
  for (const line of lines) t.equal((await refresh(setting, clientId, line)).status, 200);
  for (const { body } of answers) await setting.server.verify(String(body.access_token));
  t.notOk(setting.events.some(({ name }) => name === "oauth_replay"));
  pass(11);
  t.equal((await refresh(setting, clientId, String(lines[0]))).body.error, "invalid_grant");
  for (const { body } of answers) {
    const refused = await refusedBy(setting.server.verify(String(body.access_token)));
    t.equal(refused.code, "token_revoked", "all of them are one family");
  }
});

t.test("a clock that was set back opens no second moment", async (t) => {
  const pass = holdTime(t);
  const setting = await openSetting(t);
  const { clientId, refreshToken } = await obtainTokens(setting);
  pass(60);
  t.equal((await refresh(setting, clientId, refreshToken)).status, 200);
  mock.timers.setTime(Date.now() - 30_000);
  t.equal((await refresh(setting, clientId, refreshToken)).body.error, "invalid_grant");
});

t.test("a code is good once, also at one moment", async (t) => {
  const setting = await openSetting(t);
  const authorized = await authorize(setting);
  const answers = await Promise.all([1, 2, 3].map(() => exchange(setting, authorized)));
  const good = answers.filter(({ status }) => status === 200);
  t.ok(good.length <= 1);
});

t.test("a refresh token is its client's alone", async (t) => {
  const setting = await openSetting(t);
  const { refreshToken } = await obtainTokens(setting);
  const other = await registered(setting);
  t.equal((await refresh(setting, other, refreshToken)).body.error, "invalid_grant");
});

t.test("a refresh cannot widen the scope", async (t) => {
  const setting = await openSetting(t);
  const { clientId, refreshToken } = await obtainTokens(setting, {
    parameters: { scope: "mcp:resources" },
  });
  const { body } = await postForm(`${setting.url}/oauth/token`, {
    grant_type: "refresh_token",
    client_id: clientId,
    refresh_token: refreshToken,
    scope: "mcp:resources mcp:tools",
  });
  t.equal(body.error, "invalid_scope");
});

t.test(
  "nothing is refreshed for a user that is disabled, removed or has a new password",
  async (t) => {
    const bob = await userWith("bob");
    for (const users of [
      (await userWith("alice", undefined, "disabled = true")) + bob,
      bob,
      (await userWith("alice", "another horse")) + bob,
      (await userWith("alice")) + bob,
      (await userWith("alice", undefined, `tokens_valid_after = ${epochSeconds() + 60}`)) + bob,
    ]) {
      const setting = await openSetting(t);
      const { clientId, refreshToken } = await obtainTokens(setting);
      setting.setUsers(users + grant("alice", "main", "ReadWrite"));
      t.equal((await refresh(setting, clientId, refreshToken)).body.error, "invalid_grant");
    }
  },
);

t.test(
  "a revocation of all that a user has ends its refresh tokens, not its next login",
  async (t) => {
    const setting = await openSetting(t);
    const { clientId, refreshToken } = await obtainTokens(setting);
    setting.revokedBefore.set("alice", epochSeconds() + 1);
    t.equal((await refresh(setting, clientId, refreshToken)).body.error, "invalid_grant");
    const next = await obtainTokens(setting);
    t.match(await setting.server.verify(next.accessToken), { username: "alice" });
  },
);

t.test("a client revokes its refresh token, and with it the grant", async (t) => {
  const setting = await openSetting(t);
  const { clientId, refreshToken, accessToken } = await obtainTokens(setting);
  const revoke = (client_id: string, token: string) =>
    postForm(`${setting.url}/oauth/revoke`, { client_id, token });
  const other = await registered(setting);
  t.equal((await revoke(other, refreshToken)).status, 200);
  await setting.server.verify(accessToken);
  t.equal((await revoke(clientId, refreshToken)).status, 200);
  t.equal((await refresh(setting, clientId, refreshToken)).body.error, "invalid_grant");
  t.equal((await refusedBy(setting.server.verify(accessToken))).code, "token_revoked");
});

t.test("a client revokes an access token alone", async (t) => {
  const setting = await openSetting(t);
  const { clientId, refreshToken, accessToken } = await obtainTokens(setting);
  const url = `${setting.url}/oauth/revoke`;
  t.equal((await postForm(url, { client_id: clientId, token: accessToken })).status, 200);
  t.equal((await refusedBy(setting.server.verify(accessToken))).code, "token_revoked");
  t.equal((await refresh(setting, clientId, refreshToken)).status, 200);
  t.equal((await postForm(url, { client_id: "nobody", token: "x" })).body.error, "invalid_client");
  t.equal((await postForm(url, { client_id: clientId })).body.error, "invalid_request");
  t.equal((await postForm(url, { client_id: clientId, token: "unknown" })).status, 200);
});

t.test("tokens, clients and consent outlive a restart", async (t) => {
  const setting = await openSetting(t, { users: await defaultUsers() });
  const { clientId, refreshToken, accessToken } = await obtainTokens(setting, { reach: "read" });
  await setting.restart();
  t.match(await setting.server.verify(accessToken), { username: "alice", readOnly: true });
  const { body } = await refresh(setting, clientId, refreshToken);
  t.match(await setting.server.verify(String(body.access_token)), { readOnly: true });
  t.ok((await obtainTokens(setting, { clientId })).accessToken);
});

t.test("an access token ends by itself", async (t) => {
  const setting = await openSetting(t, { tokenLifetime: 1 });
  const { accessToken } = await obtainTokens(setting);
  await eventually("the token is refused", async () => {
    const outcome = await setting.server.verify(accessToken).catch((error: unknown) => error);
    return outcome instanceof Refusal && outcome.code === "token_expired";
  });
});
