import { createServer } from "node:http";
import sparticuz from "@sparticuz/chromium";
import { type Browser, chromium } from "playwright-core";
import type { Test } from "tap";

/** A site of a test's own that shows this page at every path: its origin. */
export async function openSite(t: Test, page: string): Promise<string> {
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "text/html" });
    response.end(page);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  return `http://127.0.0.1:${address.port}`;
}

/** A program on the user's machine that waits for the answer. */
export async function openCallback(t: Test): Promise<string> {
  return `${await openSite(t, "You can close this page.")}/callback`;
}

/** What the browser must not be spared: the rules that pages rely on. */
const unwanted = ["--disable-web-security", "--allow-running-insecure-content", "--single-process"];

/** Starts a headless browser; it ends with the test. */
export async function launch(t: Test): Promise<Browser> {
  const browser = await chromium.launch({
    executablePath: await sparticuz.executablePath(),
    args: sparticuz.args.filter((argument) => !unwanted.includes(argument)),
  });
  t.teardown(() => browser.close());
  return browser;
}
