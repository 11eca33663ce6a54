/** Browsers by what they say of themselves; each says that it is those after it, too. */
const browsers = [
  [/\bEdg(?:A|iOS)?\/(\d+)/, "Edge"],
  [/\bOPR\/(\d+)/, "Opera"],
  [/\b(?:Firefox|FxiOS)\/(\d+)/, "Firefox"],
  [/\b(?:HeadlessChrome|Chrome|CriOS)\/(\d+)/, "Chrome"],
  [/\bVersion\/(\d+)[\d.]* (?:Mobile\/\w+ )?Safari\//, "Safari"],
] as const;

const systems = [
  [/\bAndroid\b/, "Android"],
  [/\b(?:iPhone|iPad)\b/, "iOS"],
  [/\bMac OS X\b/, "macOS"],
  [/\bWindows\b/, "Windows"],
  [/\bLinux\b/, "Linux"],
] as const;

/** A browser as people call it; what is none of the usual ones is shown as it is. */
export function browserNamed(userAgent: string): string {
  for (const [pattern, name] of browsers) {
    const version = pattern.exec(userAgent)?.[1];
    if (version === undefined) continue;
    const [, system] = systems.find(([sign]) => sign.test(userAgent)) ?? [];
    return system === undefined ? `${name} ${version}` : `${name} ${version} on ${system}`;
  }
  return userAgent || "a browser that does not say what it is";
}
