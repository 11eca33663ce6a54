import { html } from "../../pages/html.ts";
import type { ConsolePage } from "./frame.ts";

/** A page that says why nothing else is shown. */
export function errorPage(heading: string, sentence: string): ConsolePage {
  return {
    title: heading,
    content: html`<h1>${heading}</h1>
<p>${sentence}</p>
<p><a href="/">Go to the console's first page</a></p>`,
  };
}
