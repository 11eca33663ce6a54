import { userHolder } from "../../core/access/grant.ts";
import { type Html, html, type Part } from "../../core/base/html.ts";
import { revokeIssued, visibleTokens } from "../../core/http/administration.ts";
import type { IssuedToken } from "../../core/identity/token.ts";
import { expiresSoon } from "../../core/identity/token-file.ts";
import { noteChange } from "./changes.ts";
import { dim, hidden, hint, mark, postForm, table, unseen, userPath } from "./frame.ts";
import { formatDate } from "./moment.ts";
import { notify } from "./notice.ts";
import { type ConsoleRequest, visitorOf } from "./visit.ts";

const SHOWN = 200;

export function tokenName({ name, tokenId }: IssuedToken): Html {
  if (name === undefined) return html`<code>${tokenId}</code>`;
  return html`<bdi>${name}</bdi>${hint(html`<code>${tokenId}</code>`)}`;
}

export function tokenExpiry({ expiresAt, ...token }: IssuedToken): Part {
  const date = formatDate(expiresAt);
  return expiresSoon({ ...token, expiresAt }) ? mark(false, date) : date;
}

/** The issued tokens of a user, or all that the visitor may see. @param page where to return to */
export async function tokenSection(c: ConsoleRequest, username: string | undefined, page = "user") {
  const { gateway } = c.var;
  const { csrf, actor, isAdministrator } = visitorOf(c);
  const tokens = (await visibleTokens(gateway, actor)).filter((token) =>
    [undefined, token.username].includes(username),
  );
  const activity = await gateway.activity.read();
  const rows = tokens.slice(0, SHOWN).map((token) => {
    const { username: user, tokenId, database, issuedAt } = token;
    const used = activity.useOfToken(tokenId);
    const what = unseen(` the token ${token.name ?? tokenId} of ${user}`);
    const fields = html`${hidden("token", tokenId)}${hidden("page", page)}`;
    return [
      html`<bdi>${user}</bdi>`,
      tokenName(token),
      html`<code>${database}</code>`,
      formatDate(issuedAt),
      used === 0 ? dim("never") : formatDate(used),
      tokenExpiry(token),
      postForm(
        csrf,
        "/sessions/revoke",
        "",
        html`${fields}<button class="small">Revoke${what}</button>`,
      ),
    ];
  });
  const moments = ["Issued", "Last used", "Expires"].map((name) => [name, "moment"] as const);
  const columns = ["User", "Token", "Database", ...moments, "Action"];
  const more = tokens.length - SHOWN;
  return html`<h2>Issued tokens</h2>
${table("Issued tokens", columns, rows, html`No tokens. ${isAdministrator && html`Issue one with <code>gatehouse token issue ${username ?? "<user>"}</code>.`}`)}
${more > 0 && html`<p class="quiet">${more} more are not shown. Filter by user to see them.</p>`}`;
}

export async function revokeToken(c: ConsoleRequest): Promise<Response> {
  const { gateway, form } = c.var;
  const change = await revokeIssued(gateway, visitorOf(c).actor, form.get("token") ?? "");
  noteChange(c, change);
  notify(c, `Revoked the token ${change.token ?? ""} of ${change.user ?? ""}.`);
  const isOnUser = form.get("page") === "user";
  return c.redirect(isOnUser ? userPath(userHolder(change.user ?? "")) : "/sessions", 303);
}
