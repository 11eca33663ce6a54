import type { Test } from "tap";
import { openSetting, type Setting, select } from "../gateway/kit.ts";
import { decodePart, encodePart, type KeyFile, readKey, signText } from "../identity/forge.ts";

/** A gateway with its key, and a good token of its own to be bent. */
export interface Forgery extends Setting {
  key: KeyFile;
  good: string;
  claims: Record<string, unknown>;
  header: { alg: string; kid: string; typ: string };
}

/** Starts a gateway that has seen the good token, so that it may remember it. */
export async function openForgery(t: Test, auth?: string): Promise<Forgery> {
  const setting = await openSetting(t, auth === undefined ? {} : { auth });
  const { gateway, upstream } = setting;
  const good = await gateway.login();
  t.equal((await gateway.query(select, good)).status, 200);
  upstream.take();
  const key = readKey(gateway.home);
  const header = { alg: key.alg, kid: key.kid, typ: "JWT" };
  return { ...setting, key, good, claims: decodePart(good, 1), header };
}

/** Shows a token twice, as if it might be remembered, and holds the answers against what they must be. */
export async function checkRefused(
  t: Test,
  { gateway, upstream }: Setting,
  token: string,
  name: string,
  code = "token_invalid",
): Promise<void> {
  for (const time of ["", ", again"]) {
    const answer = await gateway.query(select, token);
    t.equal(answer.status, 401, `${name}${time}`);
    t.equal(answer.body.code, code, name);
    t.match(
      answer.headers.get("www-authenticate"),
      /^Bearer realm="gatehouse", error="invalid_token"/,
    );
  }
  t.equal(upstream.take().length, 0, "nothing has reached the database");
}

/** Holds a token against the gateway that must take it. */
export async function checkTaken(
  t: Test,
  { gateway, upstream }: Setting,
  token: string,
  name: string,
): Promise<void> {
  t.equal((await gateway.query(select, token)).status, 200, name);
  t.equal(upstream.take().length, 1);
}

/** Signs any bytes under any header with the gateway's own key, also what no library would sign. */
export async function forge(
  { key }: Forgery,
  header: unknown,
  payload: string | Buffer,
): Promise<string> {
  const body = Buffer.from(payload).toString("base64url");
  return signText(key, `${encodePart(header)}.${body}`);
}
