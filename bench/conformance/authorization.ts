import { freePort } from "../../test/kit/free-port.ts";
import { PlainBrowser } from "../../test/oauth/browser.ts";
import { clientId, password, username } from "./gateway.ts";
import { type Results, runSuite } from "./suite.ts";

/** Logs in and gives consent as a user in a browser would. */
async function allow(issuer: string, authorizationUrl: string): Promise<void> {
  const browser = new PlainBrowser(issuer);
  const login = await browser.open(authorizationUrl);
  const consent = await browser.submit(login, { username, password, action: "login" });
  const decision = { database: "*", reach: "full", action: "allow" };
  const { url } = await browser.submit(consent, decision);
  await (await fetch(url)).text();
}

export async function runAuthorizationSuite(issuer: string): Promise<Results> {
  const port = String(await freePort());
  const flags = ["--url", issuer, "--client-id", clientId, "--port", port];
  return runSuite(["authorization", ...flags, "--resource", `${issuer}/mcp`], (suite) => {
    let text = "";
    let isPlayed = false;
    suite.stdout?.setEncoding("utf8").on("data", (chunk: string) => {
      text += chunk;
      const [url] = /http\S+\/oauth\/authorize\?\S+(?=\s)/.exec(text) ?? [];
      if (url === undefined || isPlayed) return;
      isPlayed = true;
      allow(issuer, url).catch((error: unknown) => {
        console.error(error);
        suite.kill();
      });
    });
  });
}
