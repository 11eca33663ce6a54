import { errors, interactionPolicy } from "oidc-provider";
import { mcpScopes } from "../scopes.ts";
import { knownScopes } from "./consent.ts";

const { Check, Prompt } = interactionPolicy;

/** Refuses a request for nothing that there is, before anybody is asked for anything. */
const scopeCheck = new Check(
  "unknown_scope",
  "the scope must be one of the resource",
  "invalid_scope",
  ({ oidc }) => {
    const { scope } = oidc.params ?? {};
    if (knownScopes(scope).length > 0) return Check.NO_NEED_TO_PROMPT;
    throw new errors.InvalidScope("no known scope", String(scope));
  },
);

/** Asks for a password unless the browser is logged in as a user who is still one. */
function loginPrompt() {
  return new Prompt(
    { name: "login", requestable: true },
    scopeCheck,
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

/** A response mode that there is not, by which the library refuses those that it would have. */
const NO_RESPONSE_MODE = "refused";

/**
 * The authorization request as it is judged: a request without a scope asks for all of the
 * resource, every request that may show a page asks for consent, and answers go by the query of
 * the redirect alone, since those in a form would need script on a page of this server.
 */
export function completeRequest(url: string): string {
  const at = url.indexOf("?");
  const parameters = new URLSearchParams(at === -1 ? "" : url.slice(at + 1));
  if ((parameters.get("scope") ?? "").trim() === "") parameters.set("scope", mcpScopes.join(" "));
  if (parameters.getAll("response_mode").some((mode) => mode !== "query")) {
    parameters.set("response_mode", NO_RESPONSE_MODE);
  }
  const prompts = (parameters.get("prompt") ?? "").split(" ").filter(Boolean);
  if (!prompts.includes("none") && !prompts.includes("consent")) {
    parameters.set("prompt", [...prompts, "consent"].join(" "));
  }
  return `${at === -1 ? url : url.slice(0, at)}?${parameters}`;
}
