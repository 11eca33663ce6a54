import { type Page, PlainBrowser } from "./browser.ts";
import { authorizeUrl, PASSWORD, registered, type Setting } from "./kit.ts";

/** A form of the login page that is right. */
export const right = { username: "alice", password: PASSWORD, action: "login" };

/** A form of the consent page that allows everything. */
export const yes = { database: "*", reach: "full", action: "allow" };

/** A browser at the login page of an app that has registered itself. */
export async function openLogin(
  setting: Setting,
  browser = new PlainBrowser(setting.url),
  metadata?: object,
): Promise<{ browser: PlainBrowser; page: Page }> {
  const client_id = await registered(setting, metadata);
  return { browser, page: await browser.open(authorizeUrl(setting, { client_id })) };
}
