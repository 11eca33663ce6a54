import { hash, randomBytes } from "node:crypto";
import { parse } from "node:querystring";
import { epochSeconds } from "../../clock.ts";
import { isLoopback } from "../../config/addresses.ts";
import { Refusal } from "../../refusal.ts";
import { accountIdOf } from "./connections.ts";
import { OAuthProblem, seeOther } from "./http.ts";
import type { Visit } from "./interaction.ts";
import { endpoints } from "./protocol.ts";

/** Binds a sign-in to the browser that has started it. Providers redirect with a cross-site GET. */
const COOKIE = "gatehouse_sign_in";
const cookieOptions = { httpOnly: true, sameSite: "lax", path: "/oauth" } as const;

/** The pages that a sign-in may return to. */
const ownPage = new RegExp(`^(?:${endpoints.interaction}/[\\w-]{1,64}|${endpoints.applications})$`);

/** A finished sign-in, until its page takes it. */
const RESULT = "SignInResult";
const RESULT_SECONDS = 60;

function resultKey(browser: string, result: string): string {
  return hash("sha256", `${browser} ${result}`, "base64url");
}

function contextOf({ provider, request, response }: Visit) {
  const { cookies } = provider.createContext(request, response);
  const [path = "", query = ""] = (request.url ?? "").split("?");
  return { cookies, prefix: path.slice(path.lastIndexOf("/") + 1), query };
}

/** @throws OAuthProblem in place of the refusals of a sign-in */
function problemOf(error: unknown): unknown {
  if (!(error instanceof Refusal) || error.status === 503) return error;
  return new OAuthProblem(error.status, error.code, error.message);
}

/** Sends the browser to the provider. */
export async function startSignIn(visit: Visit): Promise<void> {
  const { request, response } = visit;
  const { signIns, issuer } = visit.options;
  const { cookies, prefix, query } = contextOf(visit);
  const { headers } = request;
  const { next } = parse(query);
  if (signIns === undefined || typeof next !== "string" || !ownPage.test(next)) {
    throw new OAuthProblem(404, "not_found", "unknown path");
  }
  // The cookie must be for the name to which the provider returns: 127.0.0.1 is not localhost.
  const { host, hostname, port } = new URL(issuer);
  const isOtherName = [`localhost:${port}`, `127.0.0.1:${port}`].includes(headers.host ?? "");
  if (isLoopback(hostname) && isOtherName && headers.host !== host) {
    return seeOther(response, `${issuer}${request.url}`);
  }
  const browser = cookies.get(COOKIE) || randomBytes(32).toString("base64url");
  cookies.set(COOKIE, browser, cookieOptions);
  const redirectUri = `${issuer}${endpoints.callback}/${prefix}`;
  try {
    seeOther(response, await signIns.begin(prefix, { redirectUri, next, browser }));
  } catch (error) {
    throw problemOf(error);
  }
}

/** Receives the provider's answer, and returns to the page that has asked for the sign-in. */
export async function finishSignIn(visit: Visit): Promise<void> {
  const { store, request, response } = visit;
  const { signIns, issuer, snapshot, onEvent, originOf } = visit.options;
  if (signIns === undefined) throw new OAuthProblem(404, "not_found", "unknown path");
  const { cookies, prefix, query } = contextOf(visit);
  const { address } = originOf(request);
  const browser = cookies.get(COOKIE) ?? "";
  try {
    const redirectUri = `${issuer}${endpoints.callback}/${prefix}`;
    const finished = await signIns.finish(prefix, { redirectUri, query, browser });
    const { next, user, issuer: by } = finished;
    await signIns.admit(snapshot(), finished);
    const { username, credential } = user;
    const result = randomBytes(32).toString("base64url");
    await store.put(RESULT, resultKey(browser, result), {
      payload: JSON.stringify({ result: accountIdOf(username, credential) }),
      ...{ grantId: undefined, uid: undefined, expires: epochSeconds() + RESULT_SECONDS },
    });
    onEvent("oauth_login", { user: username, issuer: by, address, outcome: "allowed" });
    seeOther(response, `${issuer}${next}?sign_in=${result}`);
  } catch (error) {
    if (error instanceof Refusal) {
      const { code: outcome, detail, token } = error;
      onEvent("oauth_login", {
        user: token?.user,
        issuer: token?.issuer,
        address,
        outcome,
        detail,
      });
    }
    throw problemOf(error);
  }
}

/** @returns the account that has signed in, once, in this browser */
export async function takeSignIn(visit: Visit): Promise<string | undefined> {
  const { store } = visit;
  const { cookies, query } = contextOf(visit);
  const { sign_in: result } = parse(query);
  if (typeof result !== "string") return undefined;
  const id = resultKey(cookies.get(COOKIE) ?? "", result);
  const found = await store.find(RESULT, id);
  if (found === undefined || !(await store.consume(RESULT, id))) return undefined;
  await store.remove(RESULT, id);
  return String(JSON.parse(found.payload).result);
}
