; Inno Setup 6: iscc /DVersion=2.0.0 /DFolder=..\..\build\frozen\moregpu installers\windows\moregpu.iss
; Per user, no administrator rights. Not built on Linux: `tests/installers` checks every input that is named here.

#ifndef Version
  #define Version "0"
#endif
#ifndef Folder
  #define Folder "..\..\build\frozen\moregpu"
#endif

[Setup]
AppId={{6E0B7B0C-5C1E-4E0B-9B53-5B1D6F4E7A21}
AppName=MoreGPU
AppVersion={#Version}
AppPublisher=MoreGPU
DefaultDirName={localappdata}\Programs\MoreGPU
DisableDirPage=yes
DisableProgramGroupPage=yes
PrivilegesRequired=lowest
ArchitecturesAllowed=x64compatible
ArchitecturesInstallIn64BitMode=x64compatible
OutputDir=..\..\dist
OutputBaseFilename=moregpu-{#Version}-windows-x86_64-setup
SetupIconFile=..\..\assets\icons\moregpu.ico
UninstallDisplayIcon={app}\moregpu-tray.exe
LicenseFile=..\..\LICENSE
Compression=lzma2
SolidCompression=yes
CloseApplications=yes
; Signing: iscc /Ssigntool="signtool sign /fd sha256 /tr http://timestamp.digicert.com /td sha256 /a $f", then:
; SignTool=signtool
; SignedUninstaller=yes

[Files]
Source: "{#Folder}\*"; DestDir: "{app}"; Flags: recursesubdirs ignoreversion
Source: "..\..\docs\contributor.md"; DestDir: "{app}"; Flags: ignoreversion

[Icons]
Name: "{userprograms}\MoreGPU"; Filename: "{app}\moregpu-tray.exe"

[Tasks]
Name: "autostart"; Description: "Start MoreGPU when I log in"

[Run]
Filename: "{app}\moregpu-tray.exe"; Parameters: "autostart on"; Tasks: autostart; Flags: runhidden
Filename: "{app}\moregpu-tray.exe"; Description: "Start MoreGPU now"; Flags: postinstall nowait skipifsilent

[UninstallRun]
Filename: "{app}\moregpu-tray.exe"; Parameters: "quit"; Flags: runhidden; RunOnceId: "quit"
Filename: "{app}\moregpu-tray.exe"; Parameters: "leave"; Flags: runhidden; RunOnceId: "leave"
Filename: "{app}\moregpu-tray.exe"; Parameters: "autostart off"; Flags: runhidden; RunOnceId: "autostart"

[UninstallDelete]
Type: filesandordirs; Name: "{localappdata}\moregpu"
