import t from "tap";
import { select } from "../gateway/kit.ts";
import { decodePart, sign } from "../identity/forge.ts";
import { checkRefused, checkTaken, openForgery } from "./forgery.ts";

t.test("a token says what it is documented to say", async (t) => {
  const { good, key, claims, gateway } = await openForgery(t);
  t.strictSame(decodePart(good, 0), { alg: "ES256", kid: key.kid, typ: "JWT" });
  t.strictSame(Object.keys(claims).sort(), [
    ...["aud", "cred", "database", "exp", "iat", "iss", "jti", "role", "sub"],
  ]);
  const named = { sub: "admin", role: "Owner", database: "*", iss: "gatehouse", aud: "gatehouse" };
  t.match(claims, named);
  t.equal(Number(claims.exp) - Number(claims.iat), 86_400);
  t.match(String(claims.cred), /^[\w-]{11}$/, "a few bytes, not the salt");
  const limited = decodePart(await gateway.login("admin", undefined, "main"), 1);
  t.match(limited, { database: "main", role: "Owner" });
  t.not(limited.jti, claims.jti);
});

t.test("a claim that is missing, of another type or another's is refused", async (t) => {
  const forgery = await openForgery(t);
  const { key, claims, header } = forgery;
  const refuse = async (changed: Record<string, unknown>, name: string) =>
    checkRefused(t, forgery, await sign(key, header, changed), name);

  for (const name of ["sub", "exp", "iat", "database", "iss", "aud", "jti", "cred"]) {
    const { [name]: _, ...rest } = claims;
    await refuse(rest, `no ${name}`);
    for (const value of [null, true, [], {}, [claims[name]], { a: 1 }]) {
      await refuse({ ...claims, [name]: value }, `${name} as ${JSON.stringify(value)}`);
    }
    const other = typeof claims[name] === "number" ? String(claims[name]) : 1;
    await refuse({ ...claims, [name]: other }, `${name} as a ${typeof other}`);
  }
  for (const value of [null, 1, "owner", "", ["Owner"], "Root"]) {
    await refuse({ ...claims, role: value }, `role as ${JSON.stringify(value)}`);
  }
  const foreign = { iss: "Gatehouse", aud: "gatehouse/mcp", database: "a.b", sub: "a b" };
  for (const [name, value] of Object.entries(foreign)) {
    await refuse({ ...claims, [name]: value }, `${name} ${value}`);
  }
  for (const aud of [
    "GATEHOUSE",
    "gatehouse ",
    "gatehouse\0",
    "g\u0430tehouse",
    "gatehouse,other",
  ]) {
    await refuse({ ...claims, aud }, `aud ${JSON.stringify(aud)}`);
  }
  for (const aud of [["gatehouse", "other"], ["gatehouse", "gatehouse"], { 0: "gatehouse" }]) {
    await refuse({ ...claims, aud }, `aud ${JSON.stringify(aud)}`);
  }
  await refuse({ ...claims, exp: Number(claims.exp) + 0.5 }, "a fraction of a second");
  await refuse({ ...claims, exp: 1e300 }, "no time at all");
  await refuse({ ...claims, exp: 2 ** 53 }, "a time that is not exact");
  await refuse({ ...claims, exp: -1 }, "a time before time");
  await refuse({ ...claims, iat: -1 }, "a negative time");
  await refuse({ ...claims, jti: "" }, "an empty name");

  const { role: _, ...roleless } = claims;
  const answer = await forgery.gateway.query(select, await sign(key, header, roleless));
  t.equal(answer.status, 200, "the role alone may be left out");
  const lowered = await sign(key, header, { ...claims, role: "ReadOnly" });
  const create = { CreateDatabase: { database: "new" } };
  t.equal((await forgery.gateway.query(create, lowered)).status, 200, "and decides nothing");
});

t.test("a token is good from its nbf to its exp", async (t) => {
  const forgery = await openForgery(t);
  const { key, claims, header } = forgery;
  const now = Math.floor(Date.now() / 1000);
  const past = await sign(key, header, { ...claims, iat: now - 100, exp: now - 1 });
  await checkRefused(t, forgery, past, "exp in the past", "token_expired");
  const answer = await forgery.gateway.query(select, past);
  t.equal(answer.body.message, "Token expired");
  const present = await sign(key, header, { ...claims, exp: now });
  await checkRefused(t, forgery, present, "exp now", "token_expired");
  const early = await sign(key, header, { ...claims, nbf: now + 60 });
  await checkRefused(t, forgery, early, "nbf in the future");
  for (const nbf of ["0", null, 0.5, [0], -1, true]) {
    const token = await sign(key, header, { ...claims, nbf });
    await checkRefused(t, forgery, token, `nbf ${JSON.stringify(nbf)}`);
  }
  const ripe = await sign(key, header, { ...claims, nbf: now });
  await checkTaken(t, forgery, ripe, "nbf now");
  const both = await sign(key, header, { ...claims, exp: now - 1, aud: "other" });
  await checkRefused(t, forgery, both, "a foreign token is invalid before it is expired");
  // A clock set back, or a limit on old tokens in the same second: the token itself is good.
  const ahead = await sign(key, header, { ...claims, iat: now + 60 });
  await checkTaken(t, forgery, ahead, "iat in the future");
});

t.test("a token of a configured issuer and lifetime is pinned to them", async (t) => {
  const forgery = await openForgery(t, 'issuer = "https://gate.example"\ntoken_expiration = 60');
  const { key, claims, header } = forgery;
  t.match(claims, { iss: "https://gate.example", aud: "gatehouse" });
  t.equal(Number(claims.exp) - Number(claims.iat), 60);
  const other = await sign(key, header, { ...claims, iss: "gatehouse" });
  await checkRefused(t, forgery, other, "the issuer of the default");
});
