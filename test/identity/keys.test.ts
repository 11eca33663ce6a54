import { statSync } from "node:fs";
import path from "node:path";
import { createRemoteJWKSet, jwtVerify } from "jose";
import t from "tap";
import { openSetting, select } from "../gateway/kit.ts";
import { readKey, readKeys } from "./forge.ts";

const privateMembers = ["d", "p", "q", "dp", "dq", "qi", "k", "oth"];

for (const algorithm of ["ES256", "EdDSA", "RS256"]) {
  t.test(`${algorithm} works from login to query, and outside by the published key`, async (t) => {
    const { gateway } = await openSetting(t, { auth: `signing_algorithm = "${algorithm}"` });
    const token = await gateway.login();
    t.equal((await gateway.query(select, token)).status, 200);

    const { headers, body } = await gateway.request("/.well-known/jwks.json");
    t.match(headers.get("content-type"), /^application\/json/);
    t.match(body.keys, [{ alg: algorithm, use: "sig", kid: readKey(gateway.home).kid }]);
    for (const name of privateMembers) t.notMatch(JSON.stringify(body), `"${name}":`);
    const published = createRemoteJWKSet(new URL(`${gateway.url}/.well-known/jwks.json`));
    const { payload, protectedHeader } = await jwtVerify(token, published, {
      issuer: "gatehouse",
      audience: "gatehouse",
      typ: "JWT",
      algorithms: [algorithm],
    });
    t.equal(payload.sub, "admin");
    t.equal(protectedHeader.alg, algorithm);
  });
}

t.test("HS256 works and publishes no key", async (t) => {
  const { gateway } = await openSetting(t, { auth: 'signing_algorithm = "HS256"' });
  t.equal((await gateway.query(select, await gateway.login())).status, 200);
  const { body, text } = await gateway.request("/.well-known/jwks.json");
  t.strictSame(body, { keys: [] });
  t.notMatch(text, readKey(gateway.home).kid);
});

t.test("keys are private to their owner and survive a restart, and so do tokens", async (t) => {
  const { gateway } = await openSetting(t);
  const token = await gateway.login();
  const { kid } = readKey(gateway.home);
  const directory = path.join(gateway.home, "keys");
  t.equal(statSync(directory).mode & 0o777, 0o700);
  t.equal(statSync(path.join(directory, `${kid}.json`)).mode & 0o777, 0o600);
  t.equal(await gateway.service.stop(), 0);

  const { gateway: again } = await openSetting(t, { home: gateway.home });
  t.equal(readKey(again.home).kid, kid);
  t.equal((await again.query(select, token)).status, 200);
});

t.test("another algorithm makes a key of its own and refuses tokens of the old one", async (t) => {
  const { gateway } = await openSetting(t);
  const { home } = gateway;
  const old = await gateway.login();
  await gateway.service.stop();

  const { gateway: changed } = await openSetting(t, { home, auth: 'signing_algorithm = "EdDSA"' });
  t.strictSame(
    readKeys(home)
      .map(({ alg }) => alg)
      .sort(),
    ["ES256", "EdDSA"],
  );
  t.equal((await changed.query(select, old)).body.code, "token_invalid");
  t.equal((await changed.query(select, await changed.login())).status, 200);
  const { keys } = JSON.parse((await changed.request("/.well-known/jwks.json")).text);
  t.equal(keys.length, 1);
  await changed.service.stop();

  const { gateway: back } = await openSetting(t, { home });
  t.equal((await back.query(select, old)).status, 200, "the old key is still there");
});
