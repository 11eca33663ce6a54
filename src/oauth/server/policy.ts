import { interactionPolicy } from "oidc-provider";
import { mcpScopes } from "../scopes.ts";

const { Check, Prompt } = interactionPolicy;

/** Asks for a password unless the browser is logged in as a user who is still one. */
function loginPrompt() {
  return new Prompt(
    { name: "login", requestable: true },
    new Check(
      "no_session",
      "the user must log in",
      "login_required",
      ({ oidc }) => oidc.session?.accountId === undefined || oidc.account === undefined,
    ),
  );
}

/**
 * Asks for consent each time. A public client cannot prove who it is, so that an earlier consent
 * says nothing of who asks now (RFC 8252, section 8.6).
 */
function consentPrompt() {
  return new Prompt(
    { name: "consent", requestable: true },
    new Check(
      "not_asked",
      "the user must consent",
      "consent_required",
      ({ oidc }) => oidc.result?.consent === undefined,
    ),
  );
}

/** What is asked of the user, in this order. */
export function createPolicy(): interactionPolicy.Prompt[] {
  return [loginPrompt(), consentPrompt()];
}

/**
 * The authorization request as it is judged: a request without a scope asks for all of the
 * resource, and every request that may show a page asks for consent.
 */
export function completeRequest(url: string): string {
  const at = url.indexOf("?");
  const parameters = new URLSearchParams(at === -1 ? "" : url.slice(at + 1));
  if ((parameters.get("scope") ?? "").trim() === "") parameters.set("scope", mcpScopes.join(" "));
  const prompts = (parameters.get("prompt") ?? "").split(" ").filter(Boolean);
  if (!prompts.includes("none") && !prompts.includes("consent")) {
    parameters.set("prompt", [...prompts, "consent"].join(" "));
  }
  return `${at === -1 ? url : url.slice(0, at)}?${parameters}`;
}
