import { setTimeout as delay } from "node:timers/promises";
import type { User } from "../../access/snapshot.ts";
import { epochSeconds } from "../../clock.ts";
import { credentialOf } from "../../identity/credential.ts";
import { Refusal } from "../../refusal.ts";
import { accountIdOf, earliestIssue } from "./accounts.ts";
import { type InteractionContext, sendPage, type Visit } from "./interaction-context.ts";
import { loginPage } from "./pages/login.ts";

/** The longest wait for a moment at which a new login counts, in seconds. */
const LONGEST_WAIT = 2;

/** Shows the login page. */
export function showLogin(
  { guard }: InteractionContext,
  visit: Visit,
  failure?: { username: string; refusal: Refusal },
): void {
  const page = loginPage({
    client: visit.view,
    csrf: guard.tokenFor(visit.interaction.uid),
    username: failure?.username ?? "",
    error: failure === undefined ? undefined : explain(failure.refusal),
  });
  const retryAfter = failure?.refusal.retryAfter;
  const headers = retryAfter === undefined ? undefined : { "Retry-After": String(retryAfter) };
  sendPage(visit, failure?.refusal.status ?? 200, page, headers);
}

/** Says no more than `/login` does. */
function explain({ code, message, retryAfter = 0 }: Refusal): string {
  if (code === "credentials_invalid") return "The username or the password is wrong.";
  const wait =
    retryAfter > 60
      ? `${Math.ceil(retryAfter / 60)} minutes`
      : `${Math.max(retryAfter, 1)} seconds`;
  if (code === "too_many_attempts") return `Too many failed attempts. Try again in ${wait}.`;
  return `${message}.`;
}

/**
 * Everything of the user that was issued up to some second may have been revoked; a login in that
 * very second waits for the next one, so that what comes of it is not taken for older.
 */
async function waitUntilItCounts(context: InteractionContext, user: User): Promise<void> {
  const seconds = earliestIssue(context.options, user) - epochSeconds();
  if (seconds > LONGEST_WAIT) throw new Refusal("credentials_invalid");
  if (seconds > 0) await delay(seconds * 1000);
}

/** The login that the browser has now, which another of its pages may have given it. */
function currentSession({ provider }: InteractionContext, { request, response }: Visit) {
  return provider.Session.get(provider.createContext(request, response));
}

/** Takes a browser out of its login. */
export async function forgetSession(context: InteractionContext, visit: Visit): Promise<void> {
  const { provider } = context;
  const { interaction } = visit;
  const current = await currentSession(context, visit);
  if (current.accountId !== undefined) await current.destroy();
  if (interaction.session === undefined) return;
  const session = await provider.Session.findByUid(interaction.session.uid);
  await session?.destroy();
  delete interaction.session;
  await interaction.save(interaction.exp - epochSeconds());
}

/** Takes a browser out of the login of another user, or of an older password. */
async function forgetOthers(
  context: InteractionContext,
  visit: Visit,
  accountId: string,
): Promise<void> {
  const { accountId: current } = await currentSession(context, visit);
  const accounts = [current, visit.interaction.session?.accountId];
  const isOther = accounts.some((one) => one !== undefined && one !== accountId);
  if (isOther) await forgetSession(context, visit);
}

/** Judges what was typed into the login page. */
export async function logIn(
  context: InteractionContext,
  visit: Visit,
  form: ReadonlyMap<string, string>,
): Promise<void> {
  const { options, provider } = context;
  const { request, response, client } = visit;
  const username = form.get("username") ?? "";
  const origin = options.originOf(request);
  // What nobody is called may be a password in the wrong field.
  const known = options.snapshot().users.has(username) ? username : undefined;
  const event = { user: known, client: client.clientId, address: origin.address };
  let user: User;
  try {
    user = await options.checkPassword(username, form.get("password") ?? "", origin);
    await waitUntilItCounts(context, user);
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    options.onEvent("oauth_login", { ...event, outcome: error.code });
    return showLogin(context, visit, { username, refusal: error });
  }
  const accountId = accountIdOf({ username: user.username, credential: credentialOf(user) });
  await forgetOthers(context, visit, accountId);
  options.onEvent("oauth_login", { ...event, outcome: "allowed" });
  await provider.interactionFinished(request, response, {
    login: { accountId, amr: ["pwd"], remember: false },
  });
}
