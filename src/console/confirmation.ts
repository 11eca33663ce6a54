/** Changes and approvals are confirmed with the visitor's password, or by a recent sign-in. */
import { checkPassword } from "../identity/login.ts";
import { isRecent } from "../oauth/client/sign-ins.ts";
import { type Html, html } from "../pages/html.ts";
import { Refusal } from "../refusal.ts";
import { type FormState, linkButton, ownPassword, pathOf } from "./frame.ts";
import type { ConsoleRequest } from "./visit.ts";

export const RECENT_SECONDS = 300;
/** Fields of a form that its page takes from the query. */
const placeFields = ["user", "action", "database", "table"];

/** The path of the form, also in response to its submission. */
function pathOfForm({ req, var: { form } }: ConsoleRequest): string {
  if (req.method === "GET") return pathOf(req.path, req.query());
  return pathOf(req.path, Object.fromEntries(placeFields.map((name) => [name, form.get(name)])));
}

/** The part of a form that confirms it. Nothing after a recent sign-in through a provider. */
export function confirmationField(c: ConsoleRequest, state?: FormState): Html | undefined {
  const { session, gateway } = c.var;
  if (session?.signIn === undefined) return ownPassword(state);
  if (isRecent(session.signIn, RECENT_SECONDS)) return undefined;
  const prefix = session.username.split(":")[0];
  const provider = gateway.signIns?.providers.find((one) => one.prefix === prefix);
  const given = { again: "yes", next: pathOfForm(c) };
  return html`<div class="field"><p>Changes need a sign-in within the last 5 minutes. Sign in again before you fill in the form.</p>
${provider && linkButton(`Sign in again: ${provider.label}`, `/sign-in/${prefix}`, given)}</div>`;
}

/** @throws Refusal `credentials_invalid`, or as `checkPassword` */
export async function requireConfirmation(c: ConsoleRequest): Promise<void> {
  const { gateway, listener, session, form } = c.var;
  if (session?.signIn !== undefined) {
    if (isRecent(session.signIn, RECENT_SECONDS)) return;
    const message = "Nothing was changed: sign in again, and submit the form within 5 minutes";
    throw new Refusal("credentials_invalid", { message });
  }
  const origin = listener.originOf(c.env.incoming);
  try {
    await checkPassword(gateway.login, session?.username ?? "", form.get("password") ?? "", origin);
  } catch (error) {
    const isWrong = error instanceof Refusal && error.code === "credentials_invalid";
    throw isWrong ? new Refusal(error.code, { message: "Incorrect password" }) : error;
  }
}
