/** The message after a change. A signed cookie carries it over the redirect. */
import type { MiddlewareHandler } from "hono";
import * as z from "zod";
import { type Html, html } from "../../core/base/html.ts";
import { confirmationField, holderIn, mayGrantTo, stateOf } from "./changes.ts";
import { hidden, plainWords, postForm } from "./frame.ts";
import { type ConsoleEnv, type ConsoleRequest, noticeCookie, visitorOf } from "./visit.ts";

const undoSchema = z.strictObject({ path: z.string(), fields: z.record(z.string(), z.string()) });
/** A form of the console, filled in so that it takes a change back. */
export type Undo = z.infer<typeof undoSchema>;

const noticeSchema = z.strictObject({
  text: z.string(),
  warning: z.string().optional(),
  undo: undoSchema.optional(),
});

const LONGEST_TEXT = 500;
const LONGEST_WARNING = 400;
/** Browsers keep cookies of up to 4 KB. */
const LARGEST_COOKIE = 3500;

function signatureName(c: ConsoleRequest, body: string): string {
  return `notice:${visitorOf(c).session.username}:${body}`;
}

function shortened(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most)}...` : text;
}

/** Shows a message on the next page. @param undo omitted if it is too long for a cookie */
export function notify(
  c: ConsoleRequest,
  message: string,
  undo?: Undo,
  warnings: readonly string[] = [],
): void {
  const text = shortened(message, LONGEST_TEXT);
  const warning = shortened(warnings.join(" "), LONGEST_WARNING) || undefined;
  const encode = (notice: z.infer<typeof noticeSchema>) =>
    Buffer.from(JSON.stringify(notice)).toString("base64url");
  const whole = encode({ text, warning, undo });
  const body = whole.length > LARGEST_COOKIE ? encode({ text, warning }) : whole;
  noticeCookie.keep(c, `${body}.${c.var.guard.tokenFor(signatureName(c, body))}`);
}

function undoForm(c: ConsoleRequest, { path, fields }: Undo): Html | undefined {
  const visitor = visitorOf(c);
  const holder = holderIn(new Map(Object.entries(fields)));
  if (!mayGrantTo(visitor, holder)) return undefined;
  const given = Object.entries({ ...fields, seen: stateOf(visitor, holder).join("\n") });
  const content = html`${given.map(([name, value]) => hidden(name, value))}${confirmationField(c)}
<div class="actions"><button>Undo the change</button></div>`;
  return html`<details><summary>Undo</summary>${postForm(visitor.csrf, path, "narrow", content)}</details>`;
}

/** Reads the message for this page. `sendPage` shows it once. */
export const readNotice: MiddlewareHandler<ConsoleEnv> = async (c, next) => {
  const cookie = c.req.method === "GET" ? noticeCookie.read(c) : undefined;
  const [body = "", signature] = cookie?.split(".") ?? [];
  if (c.var.guard.isValid(signatureName(c, body), signature)) {
    const { text, warning, undo } = noticeSchema.parse(
      JSON.parse(Buffer.from(body, "base64url").toString()),
    );
    c.set(
      "notice",
      html`<div class="note${warning === undefined && " done"}"><div role="status"><p>${plainWords(text)}</p>${warning && html`<p><strong>Warning:</strong> ${plainWords(warning)}</p>`}</div>${undo && undoForm(c, undo)}</div>`,
    );
  }
  await next();
};
