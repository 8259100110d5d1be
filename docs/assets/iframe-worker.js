// Browsers start no workers for pages read from disk; there, the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  // The search looks for this name to know that it runs in a frame.
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      const inner = frame.contentWindow;
      const load = (address) => new Promise((resolve, reject) => {
        const script = inner.document.createElement("script");
        script.src = new URL(address, location.href).href;
        script.onload = resolve;
        script.onerror = reject;
        inner.document.body.appendChild(script);
      });
      inner.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      inner.importScripts = (...addresses) =>
        addresses.reduce((before, address) => before.then(() => load(address)), Promise.resolve());
      this.frame = frame;
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
