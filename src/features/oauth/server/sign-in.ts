import { hash, randomBytes } from "node:crypto";
import { parse } from "node:querystring";
import * as z from "zod";
import { epochSeconds } from "../../../core/base/clock.ts";
import { Refusal } from "../../../core/base/refusal.ts";
import { isLoopback } from "../../../core/config/addresses.ts";
import type { AuthenticationDemand } from "../client/relying-party.ts";
import { describeFailure, isRecent } from "../client/sign-ins.ts";
import { formatAccountId } from "./connections.ts";
import { OAuthProblem, seeOther } from "./http.ts";
import type { Visit } from "./options.ts";
import { cookieFor, endpoints, issuerPath } from "./protocol.ts";
import { takeRecord } from "./state-store.ts";

/** The pages that a sign-in may return to, below the path of the issuer. */
const ownPage = new RegExp(`^(?:${endpoints.interaction}/[\\w-]{1,64}|${endpoints.applications})$`);

/** A finished sign-in, until its page takes it. */
const RESULT = "SignInResult";
const RESULT_SECONDS = 60;

function resultKey(browser: string, page: string, result: string): string {
  return hash("sha256", `${browser} ${page} ${result}`, "base64url");
}

function visitParts({ provider, options, request, response }: Visit) {
  const { cookies } = provider.createContext(request, response);
  // Binds a sign-in to the browser that has started it. Providers redirect with a cross-site GET.
  const cookie = cookieFor(options.issuer, "gatehouse_sign_in");
  const target = (request.url ?? "").slice(issuerPath(options.issuer).length);
  const [path = "", query = ""] = target.split("?");
  const prefix = path.slice(path.lastIndexOf("/") + 1);
  const redirectUri = `${options.issuer}${endpoints.callback}/${prefix}`;
  return { cookies, cookie, target, path, prefix, query, redirectUri };
}

/** Audits why a sign-in failed. @returns the error for its page */
function failed({ options }: Visit, error: unknown): unknown {
  if (!(error instanceof Refusal) || error.code === "not_found") return error;
  const { status, code, message } = error;
  options.onEvent("oauth_login", describeFailure(error));
  return status === 503 ? error : new OAuthProblem(status, code, message);
}

const interactionShape = z.object({
  params: z.object({
    client_id: z.string(),
    prompt: z.string().default(""),
    max_age: z.coerce.number().optional(),
  }),
});

/** The client's authorization request for which a page is shown. */
async function readRequest({ store }: Visit, page: string) {
  const found = await store.find("Interaction", page.slice(endpoints.interaction.length + 1));
  return found && interactionShape.parse(JSON.parse(found.payload)).params;
}

/** The demands that the provider has to meet. */
async function readDemand(visit: Visit, page: string): Promise<AuthenticationDemand> {
  const { prompt = "", max_age: maxAge } = (await readRequest(visit, page)) ?? {};
  return { maxAge, ...(prompt.split(" ").includes("login") && { prompt: "login" }) };
}

/** Sends the browser to the provider. */
export async function startSignIn(visit: Visit): Promise<void> {
  const { request, response, options } = visit;
  const { signIns, issuer } = options;
  const { cookies, cookie, target, prefix, query, redirectUri } = visitParts(visit);
  const { next } = parse(query);
  if (signIns === undefined || typeof next !== "string" || !ownPage.test(next)) {
    throw new OAuthProblem(404, "not_found", "unknown path");
  }
  // The cookie must be for the name to which the provider returns: 127.0.0.1 is not localhost.
  const { host, hostname, port } = new URL(issuer);
  const { host: given = "" } = request.headers;
  const isOtherName = [`localhost:${port}`, `127.0.0.1:${port}`].includes(given);
  if (isLoopback(hostname) && isOtherName && given !== host) {
    return seeOther(response, issuer + target);
  }
  const browser = cookies.get(cookie.name) || randomBytes(32).toString("base64url");
  cookies.set(cookie.name, browser, cookie.options);
  try {
    const demand = await readDemand(visit, next);
    seeOther(response, await signIns.begin(prefix, { redirectUri, next, browser, ...demand }));
  } catch (error) {
    throw failed(visit, error);
  }
}

/** Receives the provider's answer, and returns to the page that has asked for the sign-in. */
export async function finishSignIn(visit: Visit): Promise<void> {
  const { store, response, options } = visit;
  const { signIns, onEvent } = options;
  if (signIns === undefined) throw new OAuthProblem(404, "not_found", "unknown path");
  const { cookies, cookie, prefix, query, redirectUri } = visitParts(visit);
  const browser = cookies.get(cookie.name) ?? "";
  try {
    const answer = { redirectUri, query, browser, snapshot: options.access.snapshot };
    const { next, maxAge, signedIn, issuer } = await signIns.finish(prefix, answer);
    const { username, credential } = signedIn;
    if (maxAge !== undefined && !isRecent(signedIn, maxAge)) {
      await signIns.forget(credential);
      const token = { issuer, user: username };
      throw new Refusal("sign_in_refused", { detail: "login_too_old", token });
    }
    const result = randomBytes(32).toString("base64url");
    await store.put(RESULT, resultKey(browser, next, result), {
      payload: JSON.stringify({ accountId: formatAccountId(username, credential) }),
      expires: epochSeconds() + RESULT_SECONDS,
    });
    const client = (await readRequest(visit, next))?.client_id;
    onEvent("oauth_login", { user: username, client, issuer, outcome: "allowed" });
    seeOther(response, `${options.issuer}${next}?sign_in=${result}`);
  } catch (error) {
    throw failed(visit, error);
  }
}

/** @returns the account that has signed in for this page, once, in this browser */
export async function takeSignIn(visit: Visit): Promise<string | undefined> {
  const { cookies, cookie, path, query } = visitParts(visit);
  const { sign_in: result } = parse(query);
  if (typeof result !== "string") return undefined;
  const key = resultKey(cookies.get(cookie.name) ?? "", path, result);
  const found = await takeRecord(visit.store, RESULT, key);
  return found && String(JSON.parse(found).accountId);
}
