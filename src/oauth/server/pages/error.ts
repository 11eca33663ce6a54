import { type Html, html, nothing } from "../../../pages/html.ts";
import { destinationOf } from "./client.ts";
import { pageHeaders, renderPage } from "./page.ts";

/** What went wrong, as OAuth names it, for the person in front of the page. */
export interface PageError {
  readonly code: string;
  readonly description: string | undefined;
}

/** The part of a response that an error is written to. */
interface Answer {
  set(headers: Record<string, string>): void;
  accepts(...types: string[]): string | string[] | false;
  body: unknown;
}

/** What each code means to a person; others are told in general. */
const meanings: Readonly<Record<string, string>> = {
  invalid_client: "The app that sent you here is not known to this gateway.",
  invalid_redirect_uri: "The app wants the answer sent to an address that it has not registered.",
  invalid_request: "The app that sent you here has asked in a way that cannot be answered.",
  invalid_target: "The app has asked for something that this gateway does not guard.",
  server_error: "Something went wrong in the gateway. Its log says what.",
};

/** The page of an error. @param link the way back to the client, if there is one */
export function errorPage({ code, description }: PageError, link: Html = nothing): string {
  const meaning = meanings[code] ?? "This request cannot go on. Start again in the app.";
  const detail =
    description === undefined ? nothing : html`<p class="quiet">${code}: ${description}</p>`;
  return renderPage({
    title: "Request refused",
    content: html`<h1>This request cannot go on</h1>
<p>${meaning}</p>
<p>Nothing was allowed. You can close this page.</p>
${link}
${detail}`,
  });
}

/** Answers with a page, or for a program with JSON (RFC 6749, section 5.2). */
export function renderErrorPage(answer: Answer, error: PageError, link?: Html): void {
  answer.set(pageHeaders(undefined));
  if (answer.accepts("html", "json") === "json") {
    answer.set({ "Content-Type": "application/json; charset=utf-8" });
    answer.body = { error: error.code, error_description: error.description };
  } else answer.body = errorPage(error, link);
}

/** Answers with the page of an error that its client is told only if the user goes there. */
export function renderHeldAnswer(answer: Answer, location: URL): void {
  const { searchParams, href } = location;
  const error = {
    code: searchParams.get("error") ?? "invalid_request",
    description: searchParams.get("error_description") ?? undefined,
  };
  const place = destinationOf(href);
  renderErrorPage(
    answer,
    error,
    html`<p><a href="${href}" rel="noreferrer">Tell the app</a>, which leads to <bdi>${place}</bdi>.</p>`,
  );
}
