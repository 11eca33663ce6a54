import { readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import t from "tap";
import { epochSeconds } from "../../src/clock.ts";
import { sweep } from "../../src/store/authorization-state.ts";
import { sharedServer } from "../engine/postgres/kit.ts";
import { testState } from "../oauth/state-contract.ts";
import { makeStore } from "./kit.ts";
import { openOwn } from "./own-replica.ts";

const made = await makeStore(t, {}, await sharedServer());

testState(t, async (t) => {
  await made.sql("delete from gatehouse.oauth");
  return [
    (await openOwn(t, made)).authorization.store,
    (await openOwn(t, made)).authorization.store,
  ];
});

t.test("of ten who use up one record at one moment, one does", async (t) => {
  const stores = [
    (await openOwn(t, made)).authorization.store,
    (await openOwn(t, made)).authorization.store,
  ];
  for (let round = 0; round < 20; round++) {
    const id = `token-${round}`;
    const record = { payload: "{}", grantId: undefined, uid: undefined };
    await stores[0]?.put("RefreshToken", id, { ...record, expires: epochSeconds() + 60 });
    const tries = Array.from({ length: 10 }, (_, at) =>
      stores[at % 2]?.consume("RefreshToken", id),
    );
    t.equal((await Promise.all(tries)).filter(Boolean).length, 1);
  }
});

t.test("a dump of the store opens nothing", async (t) => {
  const state = (await openOwn(t, made)).authorization.store;
  const secret = "a-cookie-or-a-code";
  const payload = JSON.stringify({ jti: secret, params: { state: secret } });
  const record = { payload, grantId: secret, uid: secret, expires: epochSeconds() + 60 };
  for (const model of ["Session", "Interaction", "AuthorizationCode"]) {
    await state.put(model, secret, record);
  }
  await state.secret("forms", Buffer.from(secret));
  const rows = JSON.stringify(await made.sql("select * from gatehouse.oauth"));
  for (const form of ["utf8", "base64", "base64url", "hex"] as const) {
    t.notMatch(rows, Buffer.from(secret).toString(form), form);
  }
  await made.sql("update gatehouse.oauth set id = 'moved' where model = 'Session'");
  t.ok(await state.find("Interaction", secret));
  await made.sql(
    "update gatehouse.oauth o set sealed = (select sealed from gatehouse.oauth where id = 'moved') where model = 'Interaction'",
  );
  await t.rejects(state.find("Interaction", secret), /was changed in the store/);
});

t.test("records are encrypted by another key, and then open by that one alone", async (t) => {
  await made.sql("delete from gatehouse.oauth");
  const before = (await openOwn(t, made)).authorization.store;
  const expires = epochSeconds() + 60;
  const record = { payload: "{}", grantId: undefined, uid: undefined, expires };
  // More than are done at a time.
  const ids = Array.from({ length: 1001 }, (_, at) => `client-${at}`);
  await Promise.all(ids.map((id) => before.put("Client", id, record)));
  await before.noteCall("g", "select", expires);

  const keyFile = path.join(made.home, "store.key");
  const [first] = readFileSync(keyFile, "utf8").split("\n");
  const second = Buffer.alloc(32, 7).toString("base64url");
  writeFileSync(keyFile, `${second}\n${first}\n`);
  t.match(await made.good(["store", "rekey"]), "1001 records");
  writeFileSync(keyFile, `${second}\n`);
  const after = (await openOwn(t, made)).authorization.store;
  for (const id of ids) t.ok(await after.find("Client", id), id);
  await t.rejects(before.find("Client", "client-0"), /a key that store.key_file does not hold/);
});

t.test("what has expired is swept, in small steps", async (t) => {
  const { store } = await openOwn(t, made);
  await made.sql("delete from gatehouse.oauth");
  await made.sql(`insert into gatehouse.oauth (model, id, sealed, expires)
    select 'Interaction', 'i' || n, '', clock_timestamp() + (2100 - n) * interval '-1 second'
    from generate_series(1, 2200) as n`);
  await sweep(store.database.query);
  t.match(await made.sql("select count(*)::int as count from gatehouse.oauth"), [{ count: 100 }]);
});
