/** A page in a browser without scripts. */
export interface Page {
  readonly status: number;
  readonly url: string;
  readonly text: string;
  readonly headers: Headers;
}

interface Cookie {
  readonly name: string;
  readonly value: string;
  readonly path: string;
  readonly attributes: string;
}

const MAX_REDIRECTS = 10;

export class PlainBrowser {
  readonly #origins: readonly string[];
  #cookies: Cookie[] = [];

  /** Stops at pages of other origins. */
  constructor(...origins: readonly string[]) {
    this.#origins = origins;
  }

  get cookies(): readonly Cookie[] {
    return this.#cookies;
  }

  #keep(headers: Headers): void {
    for (const line of headers.getSetCookie()) {
      const [pair = "", ...attributes] = line.split("; ");
      const at = pair.indexOf("=");
      const name = pair.slice(0, at);
      const path = attributes.find((item) => item.startsWith("path="))?.slice(5) ?? "/";
      this.#cookies = this.#cookies.filter((one) => one.name !== name || one.path !== path);
      const value = pair.slice(at + 1);
      const cookie = { name, value, path, attributes: attributes.join("; ") };
      if (value !== "") this.#cookies.push(cookie);
    }
  }

  #cookieHeader(pathname: string): string {
    return this.#cookies
      .filter(({ path }) => pathname === path || pathname.startsWith(path.replace(/\/?$/, "/")))
      .map(({ name, value }) => `${name}=${value}`)
      .join("; ");
  }

  async open(url: string, form?: URLSearchParams): Promise<Page> {
    let next = url;
    let body = form;
    for (let step = 0; step < MAX_REDIRECTS; step++) {
      const cookie = this.#cookieHeader(new URL(next).pathname);
      const answer = await fetch(next, {
        redirect: "manual",
        headers: { accept: "text/html", ...(cookie === "" ? {} : { cookie }) },
        ...(body === undefined ? {} : { method: "POST", body }),
      });
      this.#keep(answer.headers);
      const location = answer.headers.get("location");
      const { status, headers } = answer;
      if (location === null) return { status, url: next, text: await answer.text(), headers };
      await answer.body?.cancel();
      next = new URL(location, next).href;
      body = undefined;
      if (!this.#origins.includes(new URL(next).origin))
        return { status, url: next, text: "", headers };
    }
    throw new Error("too many redirects");
  }

  submit(page: Page, fields: Readonly<Record<string, string>>): Promise<Page> {
    const hidden = /<input type="hidden" name="(\w+)" value="([^"]*)">/g;
    const form = new URLSearchParams();
    for (const [, name = "", value = ""] of page.text.matchAll(hidden)) form.set(name, value);
    for (const [name, value] of Object.entries(fields)) form.set(name, value);
    return this.open(page.url, form);
  }
}
