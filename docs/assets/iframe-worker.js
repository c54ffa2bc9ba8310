// Browsers start no worker from a file on disk. There, the search runs in a hidden frame instead,
// which is spoken to in the same way: postMessage, and events called "message".
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      const inside = frame.contentWindow
      const load = (src) =>
        new Promise((loaded, failed) => {
          const script = inside.document.createElement("script")
          script.onload = loaded
          script.onerror = failed
          script.src = src
          inside.document.body.append(script)
        })
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      inside.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => load(each)), Promise.resolve())
      this.frame = frame
      this.ready = load(new URL(url, document.baseURI).href).then(() => inside)
    }

    postMessage(data) {
      this.ready.then((inside) => inside.dispatchEvent(new MessageEvent("message", { data })))
    }

    terminate() {
      this.frame.remove()
    }
  }
}
